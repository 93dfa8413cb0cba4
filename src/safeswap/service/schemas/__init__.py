"""What goes over the wire: the types of requests and answers, from which the contract is made."""
