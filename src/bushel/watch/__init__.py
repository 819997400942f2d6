"""What a pipeline is and does, for people: values, and the texts and pages made of them."""
