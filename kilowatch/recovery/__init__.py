"""Recovery of a node or GPU: the steps from what is wrong to work again, and their execution by hooks."""
