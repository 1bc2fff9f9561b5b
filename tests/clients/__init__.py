"""Six real clients in front of `mirror`, with a scripted model on loopback (`make clients`)."""
