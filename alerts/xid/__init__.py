"""What the numbered errors of the NVIDIA driver mean: tables, and the little code that reads them."""
