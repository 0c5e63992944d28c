"""Order of work in a join that several windows share: bands, policies, and the release of results."""
