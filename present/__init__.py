"""The words of every face: each fact of a resource is worded here once, and terminal, web pages, command line and
notifications lay it out. Pure: values of `api` in, text out."""
