"""Splits the name of a file in a tar file into the sample's key and the field."""


def split_name(name: str) -> tuple[str, str] | None:
    """The key and the ending of a file's name; None if it has no ending.

    >>> split_name("v1.0/dogs/17.Seg.png"), split_name("README")
    (('v1.0/dogs/17', 'seg.png'), None)
    """
    dot = name.find(".", name.rfind("/") + 1)
    if dot < 0 or dot == 0 or name[dot - 1] == "/":
        return None
    return name[:dot], name[dot + 1 :].lower()
