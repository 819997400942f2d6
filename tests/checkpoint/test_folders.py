"""States in folders: whole or not at all, and whatever else is there is told apart."""

import itertools
import json
import os
import pickle
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from bushel.checkpoint.folders import MAX_BYTES, encode, read_state, read_states, write_encoded
from bushel.checkpoint.signed import MAX_DEPTH
from bushel.errors import StateError
from tests.checkpoint.programs import run
from tests.patience import PATIENCE_SECONDS


def _nested(levels: int) -> Any:
    state: Any = {"next_index": 1}
    for _ in range(levels):
        state = {"parent": state}
    return state


# Writing.


def test_a_state_comes_back(tmp_path: Path) -> None:
    state = {"next_index": 3, "names": ["é", "\u2028", "\x00"], "rest": [None, True, 1.5, 2**70]}
    write_encoded(tmp_path, encode(state))
    assert read_state(tmp_path) == state
    assert read_states(tmp_path) == [state]
    assert read_state(str(tmp_path)) == state


def test_people_can_read_it(tmp_path: Path) -> None:
    write_encoded(tmp_path, encode({"next_index": 3}), 2, 4)
    assert os.listdir(tmp_path) == ["process_2-of-4.json"]
    assert (tmp_path / "process_2-of-4.json").read_text() == '{\n    "next_index": 3\n}'


def test_states_in_bytes_are_written_the_same(tmp_path: Path) -> None:
    write_encoded(tmp_path, encode(b'{"next_index":\n3}'))
    assert (tmp_path / "process_0-of-1.json").read_bytes() == encode({"next_index": 3})


def test_whoever_may_read_other_files_may_read_this(tmp_path: Path) -> None:
    write_encoded(tmp_path, encode({}))
    (tmp_path / "other").write_text("")
    modes = {path.stat().st_mode for path in tmp_path.iterdir()}
    assert len(modes) == 1


def test_a_later_state_takes_the_place(tmp_path: Path) -> None:
    for count in (1000, 1, 500):
        write_encoded(tmp_path, encode({"numbers": list(range(count))}))
        assert read_state(tmp_path) == {"numbers": list(range(count))}
    assert len(os.listdir(tmp_path)) == 1


def test_there_must_be_a_folder(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        write_encoded(tmp_path / "none", encode({}))


NOT_STATES: dict[str, tuple[Callable[[], Any], str]] = {
    "a list": (lambda: [1, 2], r"a dict, or JSON in bytes, and this is a list: \[1, 2\]"),
    "None": (lambda: None, "this is a NoneType"),
    "a text": (lambda: "{}", "this is a str"),
    "a set inside": (lambda: {"seen": {1}}, "written as JSON: Object of type set .*'seen': {1}"),
    "bytes inside": (lambda: {"key": b"x"}, "Object of type bytes"),
    "a pair as a key": (lambda: {(1, 2): 3}, "keys must be str"),
    "bytes of something else": (lambda: pickle.dumps({}), "this state is damaged, or no JSON"),
    "deep": (lambda: _nested(MAX_DEPTH + 1), f"nested more than {MAX_DEPTH} levels"),
    "huge": (lambda: {"x": "a" * MAX_BYTES}, "takes 67,108,8.. bytes .* only 67,108,864"),
}


@pytest.mark.parametrize("name", NOT_STATES)
def test_what_cannot_be_restored_is_not_written(name: str, tmp_path: Path) -> None:
    make, words = NOT_STATES[name]
    with pytest.raises(StateError, match=words):
        write_encoded(tmp_path, encode(make()))
    assert os.listdir(tmp_path) == []


def test_a_state_that_contains_itself(tmp_path: Path) -> None:
    state: dict[str, Any] = {}
    state.update(one=state, two=[state])
    with pytest.raises(StateError, match="nested"):
        write_encoded(tmp_path, encode(state))


def test_as_deep_as_is_allowed(tmp_path: Path) -> None:
    state = _nested(MAX_DEPTH - 2)
    write_encoded(tmp_path, encode(state))
    assert read_state(tmp_path) == state


# Reading.

DAMAGED: dict[str, tuple[bytes, str]] = {
    "empty": (b"", "is empty"),
    "blank": (b"  \n", "is empty"),
    "broken off": (b'{"next_index": 3, "par', r"damaged, or no JSON: b'{.*it has 22 bytes"),
    "garbage": (b"next: 3", r"damaged, or no JSON: b'next: 3'.*line 1 column 1"),
    "zeros": (b"\0" * 100, "damaged, or no JSON"),
    "no text": (b"\xff\xfe\xfa", "damaged, or no JSON"),
    "two states": (b"{}{}", "damaged, or no JSON: .*Extra data"),
    "a pickle": (pickle.dumps(os.getcwd), "damaged, or no JSON"),
    "a list": (b"[1]", r"no JSON object: b'\[1\]'"),
    "a number": (b"3", "no JSON object"),
    "a text": (b'"state"', "no JSON object"),
    "nothing": (b"null", "no JSON object"),
    "deep lists": (b"[" * 100_000 + b"]" * 100_000, "nested too deeply"),
    "deep objects": (b'{"a":' * 100_000 + b"1" + b"}" * 100_000, "nested too deeply"),
    "fairly deep": (json.dumps(_nested(600)).encode(), f"nested more than {MAX_DEPTH} levels"),
    "a number without end": (b'{"next_index": ' + b"1" * 10_000 + b"}", "damaged, or no JSON"),
}


@pytest.mark.parametrize("name", DAMAGED)
def test_a_damaged_file(name: str, tmp_path: Path) -> None:
    contents, words = DAMAGED[name]
    (tmp_path / "process_0-of-1.json").write_bytes(contents)
    with pytest.raises(StateError, match=f"(?s){words}") as caught:
        read_state(tmp_path)
    assert len(str(caught.value)) < 1000
    assert str(caught.value).startswith(f"{tmp_path}/process_0-of-1.json ")
    with pytest.raises(StateError):
        read_states(tmp_path)


def test_a_huge_file_is_not_read(tmp_path: Path) -> None:
    with (tmp_path / "process_0-of-1.json").open("wb") as file:
        file.truncate(2**40)
    with pytest.raises(StateError, match="has more than 67,108,864 bytes, so it is no state"):
        read_state(tmp_path)


def test_a_pipe_is_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "process_0-of-1.json")
    with pytest.raises(StateError, match=r"process_0-of-1\.json is no file"):
        read_state(tmp_path)


def test_a_folder_in_the_place_of_the_file(tmp_path: Path) -> None:
    (tmp_path / "process_0-of-1.json").mkdir()
    with pytest.raises(StateError, match=r"process_0-of-1\.json is no file"):
        read_state(tmp_path)


def test_nothing_in_a_state_isrun(tmp_path: Path) -> None:
    state = {"py/object": "os.system", "__reduce__": ["os.system", ["touch ran"]], "$ref": "/"}
    write_encoded(tmp_path, encode(state))
    assert read_state(tmp_path) == state


# Which files there are.


def _touch(folder: Path, *names: str) -> None:
    for name in names:
        (folder / name).write_text("{}")


def test_no_folder(tmp_path: Path) -> None:
    for folder in (tmp_path / "none", tmp_path / "file"):
        (tmp_path / "file").write_text("")
        for read in (read_state, read_states):
            with pytest.raises(StateError, match=f"there is no folder {folder}"):
                read(folder)


def test_an_empty_folder(tmp_path: Path) -> None:
    for read in (read_state, read_states):
        with pytest.raises(StateError, match=r"has no process_0-of-1\.json, .* It is empty\."):
            read(tmp_path)


def test_a_folder_with_other_things(tmp_path: Path) -> None:
    _touch(tmp_path, "model", "data")
    for read in (read_state, read_states):
        with pytest.raises(StateError, match=r"no state of an iterator\. It has data, model\."):
            read(tmp_path)


def test_another_number_of_processes(tmp_path: Path) -> None:
    for index in range(12):
        write_encoded(tmp_path, encode({"next_index": index}), index, 12)
    with pytest.raises(StateError) as caught:
        read_state(tmp_path, 1, 2)
    assert str(caught.value).startswith(
        f"{tmp_path} has no process_1-of-2.json: its states were saved by 12 processes "
        "(process_0-of-12.json, process_1-of-12.json, process_2-of-12.json, process_3-of-12.json, "
        "process_4-of-12.json, process_5-of-12.json, process_6-of-12.json, process_7-of-12.json "
        "and 4 more), and there are 2 now. Each state belongs to one process, so it takes 12 to "
        "restore them. (these states cannot be put together: at /next_index host 0 has 0 and"
    )


def test_lanes_of_any_number_of_processes(tmp_path: Path) -> None:
    for index in range(3):
        state = {"step": 5, "lanes": {str(index): {"next_index": index}}}
        write_encoded(tmp_path, encode(state), index, 3)
    whole = {"step": 5, "lanes": {str(lane): {"next_index": lane} for lane in range(3)}}
    for index, count in ((0, 1), (1, 2), (5, 6)):
        assert read_state(tmp_path, index, count) == whole


def test_saved_by_one_process(tmp_path: Path) -> None:
    write_encoded(tmp_path, encode({"next_index": 4}))
    assert read_state(tmp_path, 3, 4) == {"next_index": 4}


def test_a_process_is_missing(tmp_path: Path) -> None:
    for index in (0, 2):
        write_encoded(tmp_path, encode({"next_index": 4}), index, 3)
    with pytest.raises(StateError, match=r"2 of 3 processes\. Missing: process_1-of-3\.json"):
        read_state(tmp_path, 0, 2)


def test_another_process_of_the_same_job(tmp_path: Path) -> None:
    _touch(tmp_path, "process_0-of-2.json")
    with pytest.raises(StateError, match=r"has no process_1-of-2.json. .*: process_0-of-2\.json\."):
        read_state(tmp_path, 1, 2)


def test_states_of_all_processes_come_in_their_order(tmp_path: Path) -> None:
    for index in reversed(range(12)):
        write_encoded(tmp_path, encode({"next_index": index}), index, 12)
    assert [state["next_index"] for state in read_states(tmp_path)] == list(range(12))
    assert read_state(tmp_path, 7, 12) == {"next_index": 7}


def test_only_files_of_processes_count(tmp_path: Path) -> None:
    write_encoded(tmp_path, encode({"next_index": 1}))
    _touch(
        tmp_path,
        "process_1-of-1.json",
        "process_00-of-1.json",
        "process_0-of-0.json",
        "process_-1-of-1.json",
        "process_0-of-2.json.bak",
        ".process_0-of-2.json.0123",
        "commit_success.txt",
    )
    assert read_states(tmp_path) == [{"next_index": 1}]


def test_states_of_several_jobs(tmp_path: Path) -> None:
    _touch(tmp_path, "process_0-of-1.json", "process_0-of-2.json", "process_1-of-2.json")
    with pytest.raises(StateError, match="jobs with different numbers of processes"):
        read_states(tmp_path)
    assert read_state(tmp_path) == {}


def test_some_states_are_missing(tmp_path: Path) -> None:
    _touch(tmp_path, "process_0-of-4.json", "process_2-of-4.json")
    with pytest.raises(StateError) as caught:
        read_states(tmp_path)
    assert str(caught.value) == (
        f"{tmp_path} has states of 2 of 4 processes. Missing: process_1-of-4.json, "
        "process_3-of-4.json."
    )


def test_a_name_that_promises_too_much(tmp_path: Path) -> None:
    _touch(tmp_path, "process_0-of-999999999.json")
    with pytest.raises(StateError, match="states of 1 of 999999999 processes"):
        read_states(tmp_path)


# All or nothing.


def test_readers_never_see_half_a_state(tmp_path: Path) -> None:
    """Two threads write states of different lengths while others read."""
    write_encoded(tmp_path, encode({"numbers": []}))
    done = threading.Event()
    failures: list[BaseException] = []

    def repeat(work: Callable[[int], object]) -> None:
        try:
            for number in itertools.count():
                work(number)
                if done.is_set():
                    return
        except BaseException as error:
            failures.append(error)
            done.set()

    def write(number: int) -> None:
        write_encoded(tmp_path, encode({"numbers": list(range(number * 997 % 5000))}))

    def read(number: int) -> None:
        numbers = read_state(tmp_path)["numbers"]
        assert numbers == list(range(len(numbers)))
        if number == 300:
            done.set()

    threads = [threading.Thread(target=repeat, args=(work,)) for work in (write, write, read)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(PATIENCE_SECONDS)
    assert failures == []
    assert os.listdir(tmp_path) == ["process_0-of-1.json"]


_DISK_FULL = """
import resource, signal, sys
from bushel.checkpoint.folders import encode, read_state, write_encoded

folder = sys.argv[1]
write_encoded(folder, encode({"numbers": [1, 2, 3]}))
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (1000, 1000))
try:
    write_encoded(folder, encode({"numbers": list(range(10_000))}))
except OSError as error:
    print(type(error).__name__)
print(read_state(folder))
"""


def test_a_disk_that_is_full_leaves_what_was_there(tmp_path: Path) -> None:
    assert run(_DISK_FULL, tmp_path).split("\n")[:2] == ["OSError", "{'numbers': [1, 2, 3]}"]
    assert os.listdir(tmp_path) == ["process_0-of-1.json"]


_KILLED = """
import os, random, signal, sys, time
from bushel.checkpoint.folders import encode, read_state, write_encoded

def states():
    number = 0
    while True:
        number += 1
        yield {"number": number, "list": list(range(number * 997 % 20_000))}

folder, last, kills = sys.argv[1], 0, 0
write_encoded(folder, encode({"number": 0, "list": []}))
while kills < 60:
    child = os.fork()
    if not child:
        for state in states():
            write_encoded(folder, encode(state))
    # Any moment will do.
    time.sleep(random.random() / 50)
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    state = read_state(folder)
    assert state["list"] == list(range(state["number"] * 997 % 20_000)), state["number"]
    kills += 1
print("kills", kills)
"""


def test_killed_in_the_middle(tmp_path: Path) -> None:
    """SIGKILL at sixty random moments: the file is the old one or the new one."""
    assert run(_KILLED, tmp_path) == "kills 60\n"
    # What a killed process had begun stays behind under a name that nobody reads.
    assert [name for name in os.listdir(tmp_path) if not name.startswith(".")] == [
        "process_0-of-1.json"
    ]
    assert len(read_states(tmp_path)) == 1


def test_what_a_killed_process_left_goes_with_the_next_state(tmp_path: Path) -> None:
    left = tmp_path / f".process_0-of-1.json.{7:016x}"
    left.write_bytes(b"{")
    write_encoded(tmp_path, encode({"next_index": 3}))
    assert os.listdir(tmp_path) == ["process_0-of-1.json"]
