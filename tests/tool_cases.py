"""Five families of chat templates with tools, and what each feeds after an answer, written a second time without any template.

Shapes follow the published families in our own words: Qwen/Hermes (results joined in a user's turn), Llama 3.1 (`ipython`, one call,
JSON text), Mistral (alternating roles, ids of nine characters, tools before the last question), DeepSeek (one block of results per
message with calls), Gemma (no tools at all; told as text).
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

from transformers import PreTrainedTokenizerFast

from chat_cases import Control, Piece, Toy, _byte_level, _fallback
from gfcr.generate.chat import Chat
from gfcr.generate.codec import Codec
from gfcr.types import Message, Part, PartKind, ToolCall

TOOL = {
    "type": "function",
    "function": {"name": "add", "description": "Adds. <|im_end|></s>", "parameters": {"type": "object", "properties": {}}},
}
TOOLS = (json.dumps(TOOL, ensure_ascii=False),)


def message(role: str, text: str, name: str | None = None, calls: Sequence[ToolCall] = (), id: str | None = None) -> Message:
    return Message(role, (Part(PartKind.TEXT, text),), name, tuple(calls), id)


@dataclass(frozen=True)
class Family:
    name: str
    template: str
    controls: tuple[str, ...]
    end: str
    """What ends an answer."""
    fed: Callable[[Sequence[Message], bool], list[Piece]]
    """(new messages, whether the answer had calls) -> what stands from the answer's end token on."""
    written: Callable[[Sequence[ToolCall]], list[Piece]]
    """Calls as a model of the family writes them."""
    calls: bool
    """Whether the template must be given calls as such."""
    ends: bool = False
    """Whether the tail begins with the end token always, white space before it apart."""
    tools: str = "template"
    begin: str | None = None
    ids: bool = False
    """Whether calls have ids."""
    results_of_nothing: bool = True
    """Whether the template shows results after an answer without calls."""


def _dumps(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)


def _text(m: Message) -> str:
    return "".join(p.text or "" for p in m.parts)


def _hermes_written(calls: Sequence[ToolCall]) -> list[Piece]:
    bodies = [f'<tool_call>\n{{"name": {_dumps(c.name)}, "arguments": {_dumps(c.arguments)}}}\n</tool_call>' for c in calls]
    return ["\n".join(bodies)]


def _hermes(new: Sequence[Message], calls: bool) -> list[Piece]:
    out: list[Piece] = [Control("<|im_end|>"), "\n"]
    for i, m in enumerate(new):
        if m.role != "tool":
            out += [Control("<|im_start|>"), f"{m.role}\n{_text(m)}", Control("<|im_end|>"), "\n"]
            continue
        if i == 0 or new[i - 1].role != "tool":
            out += [Control("<|im_start|>"), "user"]
        out += [f"\n<tool_response>\n{_text(m)}\n</tool_response>"]
        if i + 1 == len(new) or new[i + 1].role != "tool":
            out += [Control("<|im_end|>"), "\n"]
    return [*out, Control("<|im_start|>"), "assistant\n"]


def _ipython_written(calls: Sequence[ToolCall]) -> list[Piece]:
    return [f'{{"name": {_dumps(c.name)}, "parameters": {_dumps(c.arguments)}}}' for c in calls]


def _ipython(new: Sequence[Message], calls: bool) -> list[Piece]:
    def head(role: str) -> list[Piece]:
        return [Control("<|start_header_id|>"), role, Control("<|end_header_id|>"), "\n\n"]

    out: list[Piece] = [Control("<|eot_id|>")]
    for m in new:
        text = _dumps(_text(m)) if m.role == "tool" else _text(m).strip()
        out += [*head("ipython" if m.role == "tool" else m.role), text, Control("<|eot_id|>")]
    return [*out, *head("assistant")]


def _results_written(calls: Sequence[ToolCall]) -> list[Piece]:
    body = ", ".join(f'{{"name": "{c.name}", "arguments": {_dumps(c.arguments)}, "id": "{c.id}"}}' for c in calls)
    return [Control("[TOOL_CALLS]"), f" [{body}]"]


def _results(new: Sequence[Message], calls: bool) -> list[Piece]:
    out: list[Piece] = [Control("</s>")]
    if not calls and any(m.role == "tool" for m in new):  # results of no call are a user's words
        new = [message("user", _spoken(new))]
    for m in new:
        if m.role == "tool":
            body = f' {{"content": {_text(m)}, "call_id": "{m.call_id}"}}'
            out += [Control("[TOOL_RESULTS]"), body, Control("[/TOOL_RESULTS]")]
        else:
            tools = [Control("[AVAILABLE_TOOLS]"), f" {_dumps([TOOL])}", Control("[/AVAILABLE_TOOLS]")]
            out += [*tools, Control("[INST]"), f" {_text(m)}", Control("[/INST]")]
    return out


def _outputs_written(calls: Sequence[ToolCall]) -> list[Piece]:
    out: list[Piece] = [Control("<calls>")]
    for c in calls:
        out += [Control("<call>"), f"{c.name}\n{_dumps(c.arguments)}", Control("</call>")]
    return [*out, Control("</calls>")]


def _outputs(new: Sequence[Message], calls: bool) -> list[Piece]:
    out: list[Piece] = [Control("<eos>")]
    if not calls and any(m.role == "tool" for m in new):
        new = [message("user", _spoken(new))]
    results = [m for m in new if m.role == "tool"]
    if results:
        out += [Control("<outputs>"), *[p for m in results for p in (Control("<output>"), _text(m), Control("</output>"))]]
        if len(results) < len(new):
            out += [Control("</outputs>")]
    for m in new:
        if m.role == "user":
            out += [Control("<user>"), _text(m)]
    return [*out, *([Control("</outputs>")] if len(results) == len(new) else [Control("<assistant>")])]


def _spoken(new: Sequence[Message]) -> str:
    return "\n\n".join(f"<tool_response>\n{_text(m)}\n</tool_response>" if m.role == "tool" else _text(m) for m in new)


def _told(new: Sequence[Message], calls: bool) -> list[Piece]:
    start, end = Control("<start_of_turn>"), Control("<end_of_turn>")
    return [end, "\n", start, f"user\n{_spoken(new).strip()}", end, "\n", start, "model\n"]


FAMILIES = {
    f.name: f
    for f in (
        Family(
            "hermes",
            "{% if tools %}{{ '<|im_start|>system\\n' }}{% if messages[0].role == 'system' %}{{ messages[0].content + '\\n\\n' }}"
            "{% endif %}{{ '# Tools\\n<tools>' }}{% for t in tools %}{{ '\\n' + (t | tojson) }}{% endfor %}"
            "{{ '\\n</tools><|im_end|>\\n' }}{% endif %}"
            "{% for m in messages %}{% if m.role == 'tool' %}"
            "{% if loop.first or messages[loop.index0 - 1].role != 'tool' %}{{ '<|im_start|>user' }}{% endif %}"
            "{{ '\\n<tool_response>\\n' + m.content + '\\n</tool_response>' }}"
            "{% if loop.last or messages[loop.index0 + 1].role != 'tool' %}{{ '<|im_end|>\\n' }}{% endif %}"
            "{% elif m.role == 'assistant' and m.tool_calls %}{{ '<|im_start|>assistant' }}"
            "{% if m.content %}{{ '\\n' + m.content }}{% endif %}{% for c in m.tool_calls %}"
            "{{ '\\n<tool_call>\\n{\"name\": \"' + c.function.name + '\", \"arguments\": ' + (c.function.arguments | tojson) }}"
            "{{ '}\\n</tool_call>' }}{% endfor %}{{ '<|im_end|>\\n' }}"
            "{% elif not (tools and loop.first and m.role == 'system') %}"
            "{{ '<|im_start|>' + m.role + '\\n' + m.content + '<|im_end|>\\n' }}{% endif %}{% endfor %}"
            "{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}",
            ("<|endoftext|>", "<|im_start|>", "<|im_end|>"),
            "<|im_end|>",
            _hermes,
            _hermes_written,
            calls=False,
        ),
        Family(
            "ipython",
            "{{ bos_token }}{% for m in messages %}"
            "{% if m.role == 'assistant' and 'tool_calls' in m %}"
            "{% if m.tool_calls | length != 1 %}{{ raise_exception('This model only supports single tool-calls at once!') }}"
            "{% endif %}{{ '<|start_header_id|>assistant<|end_header_id|>\\n\\n' }}{% set c = m.tool_calls[0].function %}"
            "{{ '{\"name\": \"' + c.name + '\", \"parameters\": ' + (c.arguments | tojson) + '}' + '<|eot_id|>' }}"
            "{% elif m.role == 'tool' or m.role == 'ipython' %}{{ '<|start_header_id|>ipython<|end_header_id|>\\n\\n' }}"
            "{{ (m.content | tojson if m.content is iterable else m.content) + '<|eot_id|>' }}"
            "{% else %}{{ '<|start_header_id|>' + m.role + '<|end_header_id|>\\n\\n' }}"
            "{% if tools and m.role == 'user' and loop.index0 < 2 and (loop.first or messages[0].role == 'system') %}"
            "{% for t in tools %}{{ (t | tojson(indent=4)) + '\\n\\n' }}{% endfor %}{% endif %}"
            "{{ m.content | trim + '<|eot_id|>' }}{% endif %}{% endfor %}"
            "{% if add_generation_prompt %}{{ '<|start_header_id|>assistant<|end_header_id|>\\n\\n' }}{% endif %}",
            ("<|begin_of_text|>", "<|end_of_text|>", "<|start_header_id|>", "<|end_header_id|>", "<|eot_id|>"),
            "<|eot_id|>",
            _ipython,
            _ipython_written,
            calls=False,
            begin="<|begin_of_text|>",
        ),
        Family(
            "results",
            "{{ bos_token }}{% set ns = namespace(index=0, last=-1) %}{% for m in messages %}"
            "{% if m.role == 'user' %}{% set ns.last = loop.index0 %}{% endif %}"
            "{% if m.role not in ('tool', 'tool_results') and not m.tool_calls %}"
            "{% if (m.role == 'user') != (ns.index % 2 == 0) %}"
            "{{ raise_exception('After the optional system message, conversation roles must alternate user/assistant') }}"
            "{% endif %}{% set ns.index = ns.index + 1 %}{% endif %}{% endfor %}"
            "{% for m in messages %}{% if m.role == 'user' %}{% if tools and loop.index0 == ns.last %}"
            "{{ '[AVAILABLE_TOOLS] ' + (tools | tojson) + '[/AVAILABLE_TOOLS]' }}{% endif %}"
            "{{ '[INST] ' + m.content + '[/INST]' }}"
            "{% elif m.tool_calls %}{{ '[TOOL_CALLS] [' }}{% for c in m.tool_calls %}"
            "{% if c.id is not defined or c.id | length != 9 %}"
            "{{ raise_exception('Tool call IDs should be alphanumeric strings with length 9!') }}{% endif %}"
            "{{ '{\"name\": \"' + c.function.name + '\", \"arguments\": ' + (c.function.arguments | tojson) }}"
            "{{ ', \"id\": \"' + c.id + '\"}' + (', ' if not loop.last else '') }}{% endfor %}{{ ']' + eos_token }}"
            "{% elif m.role == 'assistant' %}{{ ' ' + m.content + eos_token }}"
            "{% elif m.role in ('tool', 'tool_results') %}"
            "{% if m.tool_call_id is not defined or m.tool_call_id | length != 9 %}"
            "{{ raise_exception('Tool call IDs should be alphanumeric strings with length 9!') }}{% endif %}"
            "{{ '[TOOL_RESULTS] {\"content\": ' + m.content + ', \"call_id\": \"' + m.tool_call_id + '\"}[/TOOL_RESULTS]' }}"
            "{% else %}{{ raise_exception('Only user and assistant roles are supported') }}{% endif %}{% endfor %}",
            (
                "<s>", "</s>", "[INST]", "[/INST]", "[AVAILABLE_TOOLS]", "[/AVAILABLE_TOOLS]", "[TOOL_CALLS]",
                "[TOOL_RESULTS]", "[/TOOL_RESULTS]",
            ),
            "</s>",
            _results,
            _results_written,
            calls=True,
            begin="<s>",
            ids=True,
            results_of_nothing=False,
        ),
        Family(
            "outputs",
            "{{ bos_token }}{% set ns = namespace(first=true, tool=false) %}{% if tools %}{{ tools | tojson }}{% endif %}"
            "{% for m in messages %}{% if m.role == 'user' %}{% if ns.tool %}{{ '</outputs>' }}{% endif %}"
            "{% set ns.tool = false %}{{ '<user>' + m.content }}"
            "{% elif m.role == 'assistant' %}{% if ns.tool %}{{ '</outputs>' }}{% else %}{{ '<assistant>' }}{% endif %}"
            "{% set ns.tool = false %}{% if m.tool_calls %}{{ m.content + '<calls>' }}{% for c in m.tool_calls %}"
            "{{ '<call>' + c.function.name + '\\n' + (c.function.arguments | tojson) + '</call>' }}{% endfor %}"
            "{{ '</calls><eos>' }}{% set ns.first = true %}{% else %}{{ m.content + '<eos>' }}{% endif %}"
            "{% elif m.role == 'tool' %}{% set ns.tool = true %}{% if ns.first %}{{ '<outputs>' }}{% set ns.first = false %}"
            "{% endif %}{{ '<output>' + m.content + '</output>' }}"
            "{% else %}{{ raise_exception('unknown role') }}{% endif %}{% endfor %}"
            "{% if add_generation_prompt %}{{ '</outputs>' if ns.tool else '<assistant>' }}{% endif %}",
            (
                "<bos>", "<eos>", "<user>", "<assistant>", "<calls>", "</calls>", "<call>", "</call>",
                "<outputs>", "</outputs>", "<output>", "</output>",
            ),
            "<eos>",
            _outputs,
            _outputs_written,
            calls=True,
            begin="<bos>",
            results_of_nothing=False,
        ),
        Family(
            "told",
            "{{ bos_token }}{% for m in messages %}{% if (m.role == 'user') != (loop.index0 % 2 == 0) %}"
            "{{ raise_exception('Conversation roles must alternate user/assistant/user/assistant/...') }}{% endif %}"
            "{{ '<start_of_turn>' + ('model' if m.role == 'assistant' else m.role) + '\\n' + m.content | trim }}"
            "{{ '<end_of_turn>\\n' }}{% endfor %}{% if add_generation_prompt %}{{ '<start_of_turn>model\\n' }}{% endif %}",
            ("<bos>", "<eos>", "<start_of_turn>", "<end_of_turn>"),
            "<end_of_turn>",
            _told,
            _hermes_written,
            calls=False,
            tools="text",
            begin="<bos>",
        ),
    )
}  # fmt: skip


@dataclass(frozen=True)
class ToolToy:
    """A small real tokenizer with a family's template."""

    family: Family
    toy: Toy

    def chat(self, tools: str | None = None) -> Chat:
        return Chat(Codec(self.toy.tokenizer), tools=tools or self.family.tools)

    def ids(self, pieces: Sequence[Piece]) -> list[int]:
        return self.toy.ids([p for p in pieces if p != ""])

    def id(self, spelling: str) -> int:
        return self.toy.id(spelling)

    def fed(self, new: Sequence[Message], calls: bool, ended: bool) -> list[int]:
        """Ids after an answer; `ended`: it wrote the end token itself."""
        return self.ids(self.family.fed(new, calls)[1 if ended else 0 :])


@cache
def tool_toy(family: str, kind: str = "bytes") -> ToolToy:
    made = FAMILIES[family]
    base = _byte_level(made.controls) if kind == "bytes" else _fallback(made.controls, kind)
    end = {"hermes": "<|endoftext|>", "ipython": "<|end_of_text|>", "results": "</s>"}.get(family, "<eos>")
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=base, eos_token=end, pad_token=end, bos_token=made.begin)
    tokenizer.chat_template = made.template
    return ToolToy(made, Toy(None, tokenizer))  # type: ignore[arg-type]
