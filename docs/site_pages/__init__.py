"""The pages of the site that are made when it is built: from the code, and from the documents at the root."""
