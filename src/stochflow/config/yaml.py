"""Settings as YAML: a reader that builds values and nothing else, `--set a.b=value`, and the annotated dump."""

from collections.abc import Callable, Hashable, Iterator
from pathlib import Path
from typing import Any

import yaml

from stochflow.config.base import Settings
from stochflow.config.schema import Config
from stochflow.core.errors import ConfigError
from stochflow.core.files import read_limited

# of a YAML text: its bytes, its values with all that aliases repeat, and how deep they are nested
_MAX_BYTES = 8 * 2**20
_MAX_VALUES = 200_000
_MAX_DEPTH = 64
_MAX_DIGITS = 400

_Base: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


class _Loader(_Base):  # type: ignore[misc]  # whichever of the two there is
    """Values and nothing else: no tag makes an object. A key that stands twice is an error, not the last of them."""

    def construct_mapping(self, node: Any, deep: bool = False) -> Any:
        seen = set()
        for key_node, _ in node.value if isinstance(node, yaml.MappingNode) else ():
            if key_node.tag == "tag:yaml.org,2002:merge":  # it may be there again, and what it brings be overridden
                continue
            key = key_node.value if key_node.value == "=" else self.construct_object(key_node, deep=True)
            if not isinstance(key, Hashable):  # which is refused below
                continue
            if key in seen:
                raise ValueError(f"the key '{key}' stands twice, again in line {key_node.start_mark.line + 1}")
            seen.add(key)
        return super().construct_mapping(node, deep)


def _short_number(construct: Callable[[Any, Any], Any]) -> Callable[[Any, Any], Any]:
    """The same constructor for numbers of a length that people write: 1:1:1… is a number in base 60, and slow."""

    def checked(loader: Any, node: Any) -> Any:
        if isinstance(node, yaml.ScalarNode) and len(node.value) > _MAX_DIGITS:
            raise ValueError(f"it holds a number of {len(node.value):,} digits")
        return construct(loader, node)

    return checked


for _tag, _construct in (("int", _Base.construct_yaml_int), ("float", _Base.construct_yaml_float)):
    _Loader.add_constructor(f"tag:yaml.org,2002:{_tag}", _short_number(_construct))


def read_yaml(path: Path) -> dict[str, Any]:
    """A YAML mapping, read without executing anything it may ask for."""
    try:
        content = parse_yaml(read_yaml_text(path))
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path} cannot be read ({error}); check the path") from None
    except ValueError as error:
        raise ConfigError(f"{path} is not valid YAML ({error}); correct it") from None
    if content is None:
        return {}
    if not isinstance(content, dict) or not all(isinstance(key, str) for key in content):
        raise ConfigError(f"{path} must hold a mapping of settings; see `stochflow config` for an example")
    return content


def read_yaml_text(path: Path) -> str:
    """The text of a file of settings or of a matrix."""
    return read_limited(path, _MAX_BYTES).decode("utf-8-sig")


def parse_yaml(text: str) -> Any:
    """The value of a YAML text, or a ValueError of one line, whatever the reader stumbles over."""
    try:
        _check_extent(text)
        loader = _Loader(text)
        try:
            return loader.get_single_data()
        finally:
            loader.dispose()
    # a date in month 13, `!!int x` and the like escape from the reader as errors of every kind
    except (yaml.YAMLError, ValueError, TypeError, LookupError, AttributeError, OverflowError) as error:
        raise ValueError(" ".join(str(error).split())) from None


def _check_extent(text: str) -> None:
    """Refuse what is too large, what aliases have multiplied or led back into itself: before any of it is built."""
    sizes: dict[str, int] = {}  # values behind an anchor
    around: list[tuple[str | None, int]] = []  # what is still open: its anchor, and the values before it
    num_values = 0
    for event in yaml.parse(text, Loader=_Base):
        if isinstance(event, yaml.AliasEvent):
            if any(anchor == event.anchor for anchor, _ in around):
                raise ValueError(f"its alias '*{event.anchor}' leads back into itself")
            num_values += sizes.get(str(event.anchor), 1)
        elif isinstance(event, yaml.ScalarEvent):
            num_values += 1
            sizes[str(event.anchor)] = 1
        elif isinstance(event, yaml.CollectionStartEvent):
            around.append((event.anchor, num_values))
            num_values += 1
        elif isinstance(event, yaml.CollectionEndEvent):
            anchor, before = around.pop()
            sizes[str(anchor)] = num_values - before
        if num_values > _MAX_VALUES:
            raise ValueError(f"it makes more than {_MAX_VALUES:,} values, aliases included")
        if len(around) > _MAX_DEPTH:
            raise ValueError("it is nested too deeply")


def parse_assignment(text: str) -> dict[str, Any]:
    """`a.b=v` as a nested dictionary, with v read as YAML."""
    key, separator, value = text.partition("=")
    if not separator or not all(key.split(".")):
        raise ConfigError(f"--set takes a.b=value, not '{text}'; for example --set reward.beta=3")
    try:
        nested: Any = parse_yaml(value)
    except ValueError:
        raise ConfigError(f"--set {key}: '{value}' is not a YAML value; quote it or correct it") from None
    if isinstance(nested, str):
        nested = _exponent_number(nested)
    for part in reversed(key.split(".")):
        nested = {part: nested}
    return nested


def dump_yaml(config: Config) -> str:
    """The resolved config as YAML, ready for `--config`."""
    return yaml.safe_dump(config.model_dump(mode="json"), sort_keys=False, allow_unicode=True)


def annotated_yaml(config: Config) -> str:
    """The same settings with each field's meaning beside it."""
    return "".join(_annotated_lines(config, indent=""))


def _annotated_lines(settings: Settings, indent: str) -> Iterator[str]:
    for name, field in type(settings).model_fields.items():
        value = getattr(settings, name)
        if isinstance(value, Settings):
            yield f"{indent}{name}:  # {type(value).__doc__}\n"
            yield from _annotated_lines(value, indent + "  ")
        else:
            yield f"{indent}{name}: {yaml_line(value)}  # {field.description}\n"


def yaml_line(value: Any) -> str:
    """A value on one line, as `--set` reads it."""
    text = yaml.safe_dump(value, default_flow_style=True, width=10**9, allow_unicode=True)
    return text.strip().removesuffix("...").strip()


def _exponent_number(text: str) -> float | str:
    # YAML 1.1 reads 1e-3 as text because it lacks a dot; people mean a number
    try:
        return float(text)
    except ValueError:
        return text
