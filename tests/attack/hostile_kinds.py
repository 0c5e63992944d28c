KINDS: list = []
