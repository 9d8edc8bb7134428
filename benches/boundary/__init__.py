"""What the library costs when it is called from Python, beside other packages (`make bench`)."""
