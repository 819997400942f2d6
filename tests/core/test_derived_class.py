"""Objects that become those of another class, and of their own again."""

from typing import Any

from bushel.core.derived_class import become, become_again


class Plain:
    def said(self) -> list[str]:
        return ["plain"]


def louder(kind: Any) -> Any:
    class Louder(kind):  # type: ignore[misc]
        def said(self) -> list[str]:
            return [*super().said(), self.word]

    return Louder


def twice(kind: Any) -> Any:
    class Twice(kind):  # type: ignore[misc]
        def said(self) -> list[str]:
            return 2 * super().said()

    return Twice


def test_a_class_is_made_once_for_all_objects_of_a_kind() -> None:
    one, other, untouched = Plain(), Plain(), Plain()
    become(one, louder, word="one")
    become(other, louder, word="other")
    assert type(one) is type(other) is not Plain
    assert one.said() == ["plain", "one"] and other.said() == ["plain", "other"]
    assert untouched.said() == ["plain"]


def test_what_came_later_stays() -> None:
    thing = Plain()
    become(thing, louder, word="loud")
    become(thing, twice)
    become_again(thing, louder)
    assert thing.said() == ["plain", "loud"] * 2
    become_again(thing, twice)
    become_again(thing, louder)
    assert type(thing) is Plain
    become_again(thing, louder)
    assert type(thing) is Plain and thing.said() == ["plain"]
