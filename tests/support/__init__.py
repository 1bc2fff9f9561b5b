"""What the tests share: judges of request bodies that know nothing of Nexus, so that its errors cannot hide in them."""
