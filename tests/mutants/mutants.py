"""Mutants of the paper's network: small errors in the source that the tests must find.

Each names a file of the package, a text that occurs there once, and what it becomes.
"""

from __future__ import annotations

from typing import NamedTuple

PAPER, CONFIG = "models/paper.py", "config/sections.py"
ENCODER, KERNEL = "operators/encoder.py", "operators/graph_kernel.py"
BRANCH, DECODER = "operators/branch.py", "operators/decoder.py"
VARIANTS, JOINT = "operators/decoder_variants.py", "operators/spacetime_kernel.py"
EDGES, PRESETS = "graph/neighbours.py", "presets.toml"


class Mutant(NamedTuple):
    """One error: the text in the file, and what it becomes."""

    name: str
    file: str
    text: str
    becomes: str


MUTANTS = (
    Mutant(
        "tanh in the lift P",
        PAPER,
        "self.lift(values), batch.frame_time",
        "self.lift(values).tanh(), batch.frame_time",
    ),
    Mutant(
        "tanh in the projection P' of the forecast",
        PAPER,
        "return self.project(self.decoder(inputs, narrow(graphs.queries, PaperQueries).decoder))",
        "return self.project("
        "self.decoder(inputs, narrow(graphs.queries, PaperQueries).decoder)).tanh()",
    ),
    Mutant(
        "tanh in the projection P' of the reconstruction",
        PAPER,
        "return self.project(narrow(encoding, FrameEncoding).latent)",
        "return self.project(narrow(encoding, FrameEncoding).latent).tanh()",
    ),
    Mutant(
        "terms dropped from the preset",
        CONFIG,
        'terms: int = setting(3, "number of decoders',
        'terms: int = setting(1, "number of decoders',
    ),
    Mutant(
        "window_time dropped from the preset",
        CONFIG,
        'True, "the parametric network sees the position in the window',
        'False, "the parametric network sees the position in the window',
    ),
    Mutant(
        "separable dropped from the preset",
        CONFIG,
        "separable: bool = setting(False,",
        "separable: bool = setting(True, ",
    ),
    Mutant(
        "preset of another model",
        PRESETS,
        'model = "stonet-paper"',
        'model = "stonet-operator"',
    ),
    Mutant(
        "offset replaced by 3 (y - x)^2",
        EDGES,
        'return x - y if describe == "difference"',
        'return 3 * (y - x) ** 2 if describe == "difference"',
    ),
    Mutant(
        "offset in the unit of the data",
        PAPER,
        "features=b.features / self.span",
        "features=b.features",
    ),
    Mutant(
        "kernels do not see the places",
        ENCODER,
        "inputs = torch.cat([inputs, position.expand(len(inputs), -1, -1)], dim=-1)",
        "inputs = torch.cat([inputs, 0 * position.expand(len(inputs), -1, -1)], dim=-1)",
    ),
    Mutant(
        "no activation in the encoder",
        ENCODER,
        "if self.linear_path else gelu(y)",
        "if self.linear_path else y",
    ),
    Mutant(
        "no own path W v in the encoder",
        ENCODER,
        "y = self.own(values) + self.kernel(",
        "y = 0 * self.own(values) + self.kernel(",
    ),
    Mutant(
        "sum for the mean over neighbours",
        KERNEL,
        "return summed / neighbour_count(neighbours, present)[..., None]",
        "return summed",
    ),
    Mutant(
        "levels down before up",
        ENCODER,
        "for fine, (operator, edges) in reversed(pairs):",
        "for fine, (operator, edges) in pairs:",
    ),
    Mutant(
        "time embedding without cosines",
        ENCODER,
        "return torch.cat([angle.sin(), angle.cos()], dim=-1)",
        "return torch.cat([angle.sin(), angle.sin()], dim=-1)",
    ),
    Mutant(
        "branch without its threshold theta",
        BRANCH,
        "[:, None, :, None] + self.threshold",
        "[:, None, :, None] + 0 * self.threshold",
    ),
    Mutant(
        "lag not over the horizon",
        BRANCH,
        "[:, None] / self.horizon)",
        "[:, None])",
    ),
    Mutant(
        "no activation of the branch",
        DECODER,
        "terms = gelu(branch).unflatten",
        "terms = branch.unflatten",
    ),
    Mutant(
        "no activation of the trunk",
        DECODER,
        "trunk = gelu(self.trunk(inputs, graph.position))",
        "trunk = self.trunk(inputs, graph.position)",
    ),
    Mutant(
        "c_i^k transposed",
        DECODER,
        'torch.einsum("btqik,ik->btqk"',
        'torch.einsum("btqik,ki->btqk"',
    ),
    Mutant(
        "trunk without the time",
        DECODER,
        "scaled = lead[..., None].expand(samples, -1, 1) / unit",
        "scaled = 0 * lead[..., None].expand(samples, -1, 1) / unit",
    ),
    Mutant(
        "segments of the horizon shifted by one",
        VARIANTS,
        "(torch.ceil(lead * count / self.horizon - 1e-4) - 1)",
        "(torch.ceil(lead * count / self.horizon - 1e-4))",
    ),
    Mutant(
        "wrong gradient of the joint kernel",
        JOINT,
        "d_by_edge += d_active.sum(1)",
        "d_by_edge += d_active.mean(1)",
    ),
    Mutant(
        "reconstruction of half the weight",
        PAPER,
        "alpha = 0.5",
        "alpha = 0.25",
    ),
)
