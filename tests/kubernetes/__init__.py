"""Parts of Kubernetes that tests start themselves."""
