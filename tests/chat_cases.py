"""Five shapes of chat template and two small tokenizers, and what each shape should give, written a second time without any template.

A shape's `pieces` say what stands in a chat: texts, and control tokens by name. `Toy.ids` encodes the texts one by one with the
tokenizer's `split_special_tokens`: another way to the same ids than the library's.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache

import numpy as np
from tokenizers import Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, trainers
from transformers import PreTrainedTokenizerFast

from gfcr.filter.assemble import build_batch
from gfcr.generate.chat import Chat, said_by
from gfcr.generate.codec import Codec
from gfcr.generate.turns import Conversation
from gfcr.types import (
    Batch,
    Credit,
    Group,
    GroupState,
    LossRole,
    Member,
    Message,
    Node,
    Normalise,
    Rollout,
    Sampling,
    Segment,
    SegmentKind,
    StopReason,
    Task,
    TokenSource,
    path_ids,
)

TEXT = """The quick brown fox asks the assistant a question about numbers, and the assistant answers it step by step.
First we add three and four, which is seven; then we multiply by two: fourteen. The user says: thank you! What is 12 + 30?
The answer is 42. def f(x):\n    return x + 1\nWhy? Because the sum of both sides is the same, said the user to the system.
Hello, Hello! hello there. user assistant system model tool Pantom phantom of the opera the the the answer answer answer."""
LAW = Sampling()


@dataclass(frozen=True)
class Control:
    """A control token in `pieces`, by its spelling."""

    name: str


Piece = str | Control
Plain = tuple[str, str]
"""(role, text)."""


@dataclass(frozen=True)
class Shape:
    """A template, its control tokens, and the same template in Python."""

    name: str
    template: str
    controls: tuple[str, ...]
    end: str | None
    """What ends an answer; None: nothing in the template."""
    pieces: Callable[[Sequence[Plain], bool], list[Piece]]
    system: bool = True


def _chatml(chat: Sequence[Plain], ask: bool) -> list[Piece]:
    out: list[Piece] = []
    for role, text in chat:
        out += [Control("<|im_start|>"), f"{role}\n{text}", Control("<|im_end|>"), "\n"]
    return [*out, Control("<|im_start|>"), "assistant\n"] if ask else out


def _header(chat: Sequence[Plain], ask: bool) -> list[Piece]:
    def head(role: str) -> list[Piece]:
        return [Control("<|start_header_id|>"), role, Control("<|end_header_id|>")]

    out: list[Piece] = [Control("<|begin_of_text|>")]
    for role, text in chat:
        out += [*head(role), f"\n\n{text.strip()}", Control("<|eot_id|>")]
    return [*out, *head("assistant"), "\n\n"] if ask else out


def _turns(chat: Sequence[Plain], ask: bool) -> list[Piece]:
    out: list[Piece] = [Control("<bos>")]
    for role, text in chat:
        name = "model" if role == "assistant" else role
        out += [Control("<start_of_turn>"), f"{name}\n{text.strip()}", Control("<end_of_turn>"), "\n"]
    return [*out, Control("<start_of_turn>"), "model\n"] if ask else out


def _bracket(chat: Sequence[Plain], ask: bool) -> list[Piece]:
    out: list[Piece] = []
    system = ""
    for role, text in chat:
        if role == "system":
            system = f"<<SYS>>\n{text}\n<</SYS>>\n\n"
        elif role == "user":
            out += [Control("<s>"), f"[INST] {system}{text.strip()} [/INST]"]
            system = ""
        else:
            out += [f" {text.strip()} ", Control("</s>")]
    return out


def _plain(chat: Sequence[Plain], ask: bool) -> list[Piece]:
    text = "".join(f"### {role.capitalize()}:\n{text}\n\n" for role, text in chat)
    return [text + ("### Assistant:\n" if ask else "")]


SHAPES = {
    s.name: s
    for s in (
        Shape(
            "chatml",
            "{% for m in messages %}{{ '<|im_start|>' + m.role + '\\n' + m.content + '<|im_end|>\\n' }}{% endfor %}"
            "{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}",
            ("<|endoftext|>", "<|im_start|>", "<|im_end|>"),
            "<|im_end|>",
            _chatml,
        ),
        Shape(
            "header",
            "{{ bos_token }}{% for m in messages %}{{ '<|start_header_id|>' + m.role + '<|end_header_id|>\\n\\n' }}"
            "{{ m.content | trim + '<|eot_id|>' }}{% endfor %}"
            "{% if add_generation_prompt %}{{ '<|start_header_id|>assistant<|end_header_id|>\\n\\n' }}{% endif %}",
            ("<|begin_of_text|>", "<|end_of_text|>", "<|start_header_id|>", "<|end_header_id|>", "<|eot_id|>"),
            "<|eot_id|>",
            _header,
        ),
        Shape(
            "turns",
            "{{ bos_token }}{% for m in messages %}"
            "{% if m.role == 'system' %}{{ raise_exception('System role not supported') }}{% endif %}"
            "{{ '<start_of_turn>' + ('model' if m.role == 'assistant' else m.role) + '\\n' + m.content | trim }}"
            "{{ '<end_of_turn>\\n' }}{% endfor %}{% if add_generation_prompt %}{{ '<start_of_turn>model\\n' }}{% endif %}",
            ("<bos>", "<eos>", "<start_of_turn>", "<end_of_turn>"),
            "<end_of_turn>",
            _turns,
            system=False,
        ),
        Shape(
            "brackets",
            "{% if messages[0].role == 'system' %}{% set system = '<<SYS>>\\n' + messages[0].content + '\\n<</SYS>>\\n\\n' %}"
            "{% set rest = messages[1:] %}{% else %}{% set system = '' %}{% set rest = messages %}{% endif %}"
            "{% for m in rest %}{% if (m.role == 'user') != (loop.index0 % 2 == 0) %}"
            "{{ raise_exception('Conversation roles must alternate user/assistant/user/assistant/...') }}{% endif %}"
            "{% if m.role == 'user' %}"
            "{{ bos_token + '[INST] ' + (system if loop.index0 == 0 else '') + m.content | trim + ' [/INST]' }}"
            "{% else %}{{ ' ' + m.content | trim + ' ' + eos_token }}{% endif %}{% endfor %}",
            ("<s>", "</s>", "<unk>"),
            "</s>",
            _bracket,
        ),
        Shape(
            "plain",
            "{% for m in messages %}{{ '### ' + m.role | capitalize + ':\\n' + m.content + '\\n\\n' }}{% endfor %}"
            "{% if add_generation_prompt %}{{ '### Assistant:\\n' }}{% endif %}",
            ("<end>",),
            None,
            _plain,
        ),
    )
}
ENDS = {"chatml": "<|endoftext|>", "header": "<|end_of_text|>", "turns": "<eos>", "brackets": "</s>", "plain": "<end>"}
"""Each tokenizer's own end token: in three shapes another one than the template's."""
BEGINS = {"header": "<|begin_of_text|>", "turns": "<bos>", "brackets": "<s>"}


@dataclass(frozen=True)
class Toy:
    """A small real tokenizer with a template."""

    shape: Shape
    tokenizer: PreTrainedTokenizerFast

    def ids(self, pieces: Sequence[Piece]) -> list[int]:
        """Neighbouring texts joined, each run encoded by itself, nothing in it taken for a control token."""
        runs: list[Piece] = []
        for piece in pieces:
            if isinstance(piece, str) and runs and isinstance(runs[-1], str):
                runs[-1] += piece
            else:
                runs.append(piece)
        out: list[int] = []
        for run in runs:
            if isinstance(run, Control):
                out.append(self.id(run.name))
            else:
                out += self.tokenizer(run, add_special_tokens=False, split_special_tokens=True)["input_ids"]
        return out

    def id(self, spelling: str) -> int:
        return int(self.tokenizer.convert_tokens_to_ids(spelling))

    def after(self, chat: Sequence[Plain], new: Sequence[Plain], ended: bool) -> list[int]:
        """Ids between an answer and the next: `chat` ends with the answer; `ended`: it wrote the template's end token."""
        mark = "@answer@"
        pieces = self.shape.pieces([*chat[:-1], ("assistant", mark), *new], True)
        at, text = next((i, p) for i, p in enumerate(pieces) if isinstance(p, str) and mark in p)
        tail: list[Piece] = [text.partition(mark)[2], *pieces[at + 1 :]]
        if ended:
            while tail and tail[0] != Control(str(self.shape.end)):
                tail = tail[1:]
            tail = tail[1:]
        return self.ids([p for p in tail if p])

    @property
    def texts(self) -> np.ndarray:
        """Ids that are no control tokens."""
        return np.setdiff1d(np.arange(len(self.tokenizer)), [self.id(c) for c in self.shape.controls])


@cache
def toy(shape: str, kind: str = "bytes", template: str | None = None, **more: str) -> Toy:
    """`kind`: `bytes` (byte-level BPE) or `fallback` (BPE over characters, the others as bytes, SentencePiece-like). `template`
    replaces the shape's."""
    made = SHAPES[shape]
    base = _byte_level(made.controls) if kind == "bytes" else _fallback(made.controls, kind)
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=base, eos_token=ENDS[shape], pad_token=ENDS[shape], bos_token=BEGINS.get(shape), **more
    )
    tokenizer.chat_template = template or made.template
    return Toy(made, tokenizer)


def _byte_level(controls: Sequence[str]) -> Tokenizer:
    made = Tokenizer(models.BPE())
    made.pre_tokenizer, made.decoder = pre_tokenizers.ByteLevel(add_prefix_space=False), decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=420, special_tokens=list(controls), initial_alphabet=pre_tokenizers.ByteLevel.alphabet(), show_progress=False
    )
    made.train_from_iterator([TEXT] * 3, trainer)
    return made


def _fallback(controls: Sequence[str], kind: str) -> Tokenizer:
    """`fallback`: as newer tokenizers (no space is put before a text); `fallback-first`: one before the first text only."""
    made = Tokenizer(models.BPE(byte_fallback=True))
    scheme = "first" if kind == "fallback-first" else "never"
    made.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme=scheme, split=False)
    made.normalizer = normalizers.Sequence([])
    trainer = trainers.BpeTrainer(vocab_size=300, special_tokens=list(controls), show_progress=False)
    made.train_from_iterator([word + " " for word in TEXT.split(" ")] * 3, trainer)
    spec = json.loads(made.to_str())
    vocabulary = spec["model"]["vocab"]
    vocabulary |= {f"<0x{byte:02X}>": len(vocabulary) + byte for byte in range(256)}
    made = Tokenizer.from_str(json.dumps(spec))
    strip = [decoders.Strip(" ", 1, 0)] if kind == "fallback-first" else []
    made.decoder = decoders.Sequence([decoders.Replace(Regex("▁"), " "), decoders.ByteFallback(), decoders.Fuse(), *strip])
    return made


def chat_of(made: Toy) -> Chat:
    return Chat(Codec(made.tokenizer))


def messages_of(chat: Sequence[Plain]) -> tuple[Message, ...]:
    return tuple(said_by(role, text) for role, text in chat)


def answer(conversation: Conversation, ids: Sequence[int], stop: StopReason = StopReason.EOS, name: str = "") -> Rollout:
    """A rollout that goes on with `ids`, as a driver makes it."""
    name = name or f"answer{conversation.turn}"
    new = np.asarray(ids, np.int32)
    path = conversation.path
    if len(new):
        segment = Segment(
            SegmentKind.ACTION,
            new,
            np.full(len(new), -0.5),
            author="policy",
            version=0,
            sampling=LAW,
            role=LossRole.RL,
            source=TokenSource.SAMPLED,
        )
        path = (*path, Node(name, path[-1].id, segment))
    return Rollout(name, "task", path, stop)


def batch_of(conversations: Sequence[Conversation]) -> Batch:
    """A batch of one row per conversation, each with advantage 1."""
    members = {}
    for i, one in enumerate(conversations):
        made = Rollout(f"r{i}", "task", one.path, one.stop or StopReason.EOS)
        members[made.id] = Member(made, credit=Credit(1.0))
    group = Group("g", Task("test", "x"), 0, 0, state=GroupState.CLOSED, members=members)
    return build_batch([group], Normalise.TOKEN_MEAN, None, 0, 0)


def sampled_mask(conversation: Conversation) -> np.ndarray:
    """bool[n]: which of a conversation's tokens the policy wrote."""
    return np.concatenate([np.full(len(n.segment), n.segment.kind is SegmentKind.ACTION) for n in conversation.path])


__all__ = [
    "BEGINS",
    "ENDS",
    "SHAPES",
    "Control",
    "Shape",
    "Toy",
    "answer",
    "batch_of",
    "chat_of",
    "messages_of",
    "path_ids",
    "toy",
]
