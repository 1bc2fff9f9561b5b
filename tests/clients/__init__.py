"""Six real clients in front of `mirror` and of `nexus proxy`, with a scripted model on loopback (`make clients`)."""
