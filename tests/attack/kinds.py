"""All kinds of trials by name, with how many of each a full run has."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from attack.damage_kinds import (
    ATTACKED,
    crash,
    crash_twice,
    cut_power,
    cut_power_spark,
    damage_file,
    mix_moments,
    move_tree,
    remove_part,
    replace_foreign,
    replace_stale,
    rotate_token,
    stop_and_continue,
    swap_files,
    take_twin,
)
from attack.kind import Kind
from attack.tree import DAMAGES
from attack.world import Image


def _damage() -> list[Kind]:
    made = []
    for kind in ATTACKED:
        # The bytes of a database are its own care; that it is gone or that of another moment is noticed.
        damages = ["deleted"] if kind == "database" else list(DAMAGES)
        made += [Kind(f"checkpoint/{kind}/{damage}", damage_file(kind, damage), 5) for damage in damages]
        made += [
            Kind(f"checkpoint/{kind}/stale", replace_stale(kind), 5),
            Kind(f"checkpoint/{kind}/swapped", swap_files(kind), 5),
            Kind(f"checkpoint/{kind}/of-another-run", replace_foreign(kind), 5),
        ]
    return made


_PARTS: Final[dict[str, Callable[[str], bool]]] = {
    "checkpoint": lambda path: path.startswith("out/.strandline"),
    "results": lambda path: path.startswith("out/") and not path.startswith("out/.strandline"),
    "state": lambda path: "/state/" in path,
    "shard": lambda path: "/state/1/0/" in path,
    "spark-log": lambda path: "/spark/" in path,
    "sources": lambda path: "/sources/" in path or "/events/" in path,
    "tables": lambda path: "/tables/" in path,
    "records": lambda path: "/batches/" in path or path.endswith("/progress.json"),
    "side-outputs": lambda path: path.startswith(("out/_late", "out/_rejected")),
}


def _directories() -> list[Kind]:
    made = []
    for name, part in _PARTS.items():
        made += [
            Kind(f"tree/{name}/older", mix_moments(part, later=False), 8),
            Kind(f"tree/{name}/newer", mix_moments(part, later=True), 6),
            Kind(f"tree/{name}/removed", remove_part(part), 6),
            Kind(f"tree/{name}/of-another-run", take_twin(part), 5),
        ]
    return [*made, Kind("tree/moved", move_tree, 30), Kind("tree/token rotated", rotate_token, 10)]


def _first(image: Image) -> bool:
    return image.commits == 0


def _crashes() -> list[Kind]:
    operations = ("open", "os.rename", "os.remove", "os.mkdir")
    made = [
        Kind(f"kill/before {name}", crash(lambda image, name=name: image.label.startswith(name)), 90)  # type: ignore[misc]
        for name in operations
    ]
    return [
        *made,
        Kind("kill/while tables change", crash(lambda image: "/tables/" in image.label), 60),
        Kind("kill/at random", crash(lambda image: image.label == "at random"), 120),
        Kind("kill/first start", crash(_first), 80),
        Kind("kill/after the end", crash_twice, 20),
        Kind("kill/stopped and continued", stop_and_continue, 30),
        *(Kind(f"power/{how}", cut_power(how), 60) for how in ("emptied", "truncated", "zeroed", "deleted")),
        Kind("power/newest offset empty", cut_power_spark("offset"), 40),
        Kind("power/newest commit empty", cut_power_spark("commit"), 40),
    ]


def all_kinds() -> dict[str, Kind]:
    from attack import hostile_kinds, input_kinds, process_kinds

    made = [*_damage(), *_directories(), *_crashes(), *input_kinds.KINDS, *hostile_kinds.KINDS, *process_kinds.KINDS]
    return {kind.name: kind for kind in made}
