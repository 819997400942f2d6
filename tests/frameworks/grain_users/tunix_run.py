"""tunix: the loader of its translation example, and a training with `PeftTrainer`."""

# isort: off
from tests.frameworks.grain_users import which  # First of all.

# isort: on
import json
from typing import Any

import grain
import jax
import jax.numpy as jnp
import numpy as np
import optax
from flax import nnx
from tunix.examples.data import translation_dataset
from tunix.sft import peft_trainer

ROWS = [
    {"src": b"hello %d" % number, "dst": b"bonjour %d " % number * (1 + number % 3)}
    for number in range(64)
]


class Tokenizer:
    def tokenize(self, text: str, prefix: str = "", suffix: str = "", add_eos: bool = True) -> Any:
        return np.frombuffer((prefix + text + suffix).encode(), np.uint8).astype(np.int32) % 64

    def pad_id(self) -> int:
        return 0


class Model(nnx.Module):  # type: ignore[misc]
    def __init__(self, rngs: Any) -> None:
        self.first = nnx.Embed(64, 16, rngs=rngs)
        self.last = nnx.Linear(16, 64, rngs=rngs)

    def __call__(self, input_tokens: Any, *_: Any, **__: Any) -> Any:
        return self.last(self.first(input_tokens)), None


def loader() -> Any:
    return translation_dataset._build_data_loader(
        data_source=ROWS,
        batch_size=8,
        num_epochs=2,
        max_seq_len=80,
        tokenizer=Tokenizer(),
        input_template=translation_dataset.INPUT_TEMPLATE,
    )


def inputs(batch: Any) -> dict[str, Any]:
    return {
        "input_tokens": batch.input_tokens,
        "input_mask": batch.input_mask,
        "positions": jnp.arange(batch.input_tokens.shape[1])[None],
        "attention_mask": None,
    }


def main() -> None:
    batches = list(loader())
    config = peft_trainer.TrainingConfig(max_steps=12, eval_every_n_steps=100)
    trainer = peft_trainer.PeftTrainer(Model(nnx.Rngs(0)), optax.sgd(0.1), config)
    trainer = trainer.with_gen_model_input_fn(inputs)
    trainer.train(loader())
    told = {
        "grain": grain.__name__,
        "count": len(batches),
        "batches": which.digest(part for batch in batches for part in jax.tree.leaves(batch)),
        "weights": which.digest(jax.tree.leaves(nnx.state(trainer.model))),
    }
    print(json.dumps(told))


if __name__ == "__main__":
    main()
