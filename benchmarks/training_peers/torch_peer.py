"""torch.nn.Transformer."""

import math

import torch
import worker
from torch import nn


class Model(nn.Module):
    """Embedding, sinusoidal positions, `nn.Transformer`, and the embedding as output."""

    def __init__(self, task):
        super().__init__()
        self.task = task
        self.embedding = nn.Embedding(task.vocab_size, task.model_dim)
        nn.init.normal_(self.embedding.weight, std=task.model_dim**-0.5)
        self.dropout = nn.Dropout(task.dropout)
        self.transformer = nn.Transformer(
            task.model_dim,
            task.num_heads,
            task.layers,
            task.layers,
            task.intermediate_dim,
            task.dropout,
            batch_first=True,
            norm_first=True,
        )
        self.register_buffer("positions", sinusoids(task.max_length, task.model_dim))

    def embed(self, ids):
        states = self.embedding(ids) * math.sqrt(self.task.model_dim)
        return self.dropout(states + self.positions[: ids.shape[1]])

    def forward(self, source, target, labels):
        hidden = source == self.task.pad_id
        hidden[:, 0] = False  # a row of pads alone would give NaN
        length = target.shape[1]
        # Pads follow the last token, so the causal mask hides them from it.
        states = self.transformer(
            self.embed(source),
            self.embed(target),
            tgt_mask=nn.Transformer.generate_square_subsequent_mask(length, source.device),
            tgt_is_causal=True,
            src_key_padding_mask=hidden,
            memory_key_padding_mask=hidden,
        )
        logits = states @ self.embedding.weight.T
        return nn.functional.cross_entropy(
            logits.flatten(0, 1),
            labels.flatten(),
            ignore_index=self.task.pad_id,
            label_smoothing=self.task.label_smoothing,
        )


def sinusoids(length, width):
    angles = torch.arange(length)[:, None] / 10000 ** (torch.arange(0, width, 2) / width)
    return torch.stack([angles.sin(), angles.cos()], dim=-1).reshape(length, width)


def make_trainer(task, settings):
    torch.set_num_threads(settings.threads)
    torch.manual_seed(task.seed)
    device = "cuda" if getattr(settings, "gpu", False) else "cpu"
    is_mixed = getattr(settings, "policy", "float32") == "mixed_bfloat16"
    model = Model(task).to(device)
    optimizer = torch.optim.Adam(
        model.parameters(), task.learning_rate, (0.9, 0.98), 1e-9, fused=True
    )
    loss_of = torch.compile(model, dynamic=device == "cpu" or None) if settings.compiled else model

    def step(*batch):
        optimizer.zero_grad()
        ids = [torch.from_numpy(each).to(device).long() for each in batch]
        with torch.autocast(device, torch.bfloat16, enabled=is_mixed):
            loss = loss_of(*ids)
        loss.backward()
        optimizer.step()
        return loss.item()

    weights = sum(weight.numel() for weight in model.parameters())
    versions = {"torch": torch.__version__, "weights": weights}
    return worker.Trainer(versions, step, library="torch")


if __name__ == "__main__":
    worker.serve(make_trainer)
