"""text_peer.py: a llama of random weights in transformers, all in bf16: reading a prompt, and steps of generation that feed
their most likely tokens back. Nothing waits for the tokens of a step, which the fastest users would not do either."""

import sys
from functools import cache, lru_cache

import torch
from transformers import AutoModelForCausalLM, DynamicCache, LlamaConfig, StaticCache

from timing import answer

SIZES = ("hidden", "inner", "layers", "heads", "kvHeads", "headSize", "vocabulary")


@lru_cache(maxsize=1)
def model_of(device, hidden, inner, layers, heads, kv_heads, head_size, vocabulary):
    config = LlamaConfig(
        hidden_size=hidden,
        intermediate_size=inner,
        num_hidden_layers=layers,
        num_attention_heads=heads,
        num_key_value_heads=kv_heads,
        head_dim=head_size,
        vocab_size=vocabulary,
        max_position_embeddings=8192,
        tie_word_embeddings=True,
    )
    with torch.device(device):
        model = AutoModelForCausalLM.from_config(config, dtype=torch.bfloat16, attn_implementation="sdpa")
    return model.eval()


def tokens_of(case, length):
    return torch.randint(case["vocabulary"], (case["texts"], length), device=case["device"])


def most_likely(model, tokens, past):
    """The tokens behind all others [texts, 1]; logits are computed for the last ones only."""
    return model(tokens, past_key_values=past, use_cache=True, logits_to_keep=1).logits.argmax(-1)


def check(tokens, case):
    if tokens.shape != (case["texts"], 1) or not (0 <= tokens.min() and tokens.max() < case["vocabulary"]):
        raise AssertionError(f"these are no tokens: {tokens}")


def prefill(case, model):
    prompt = tokens_of(case, case["prompt"])
    yield "transformers bf16", lambda i: most_likely(model, prompt, DynamicCache(config=model.config))


class Steps:
    """Steps behind a prompt, over and over: run(i) is one of them."""

    def __init__(self, case, model, past):
        self.model, self.past = model, past
        self.depth, self.steps = case["depth"], case["steps"]
        self.token = most_likely(model, tokens_of(case, self.depth), past).clone()

    def again(self):
        """Forgets the steps."""

    def advance(self):
        self.token.copy_(most_likely(self.model, self.token, self.past))

    def __call__(self, i):
        if i % self.steps == 0:
            self.again()
        self.advance()
        return self.token


class GrowingSteps(Steps):
    def __init__(self, case, model):
        super().__init__(case, model, DynamicCache(config=model.config))

    def again(self):
        extra = self.past.get_seq_length() - self.depth
        if extra > 0:
            self.past.crop(-extra)


class StaticSteps(Steps):
    """A cache of the length that is needed, whose positions are on the device."""

    def __init__(self, case, model):
        super().__init__(case, model, StaticCache(config=model.config, max_cache_len=case["depth"] + case["steps"]))

    def again(self):
        for layer in self.past.layers:
            layer.cumulative_length.fill_(self.depth)


class GraphSteps(StaticSteps):
    """The same, replayed."""

    def __init__(self, case, model):
        super().__init__(case, model)
        stream = torch.cuda.Stream()
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):
            for i in range(3):
                self(i)
            self.again()
        torch.cuda.current_stream().wait_stream(stream)
        self.graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(self.graph):
            super().advance()
        self.advance = self.graph.replay


def on_first_call(make, *arguments):
    """Makes steps when they are timed, so that a failure is theirs alone."""
    made = cache(lambda: make(*arguments))
    return lambda i: made()(i)


def decode(case, model):
    if case["device"] == "cuda":
        yield "transformers bf16, CUDA graph", on_first_call(GraphSteps, case, model)
    else:
        yield "transformers bf16, static cache", on_first_call(StaticSteps, case, model)
    yield "transformers bf16", on_first_call(GrowingSteps, case, model)


def measure(case):
    model = model_of(case["device"], *(case[name] for name in SIZES))
    with torch.inference_mode():
        for name, run in (prefill if case["prompt"] else decode)(case, model):
            yield name, run, None, lambda tokens: check(tokens, case)


if __name__ == "__main__":
    answer(sys.stdin.read(), measure)
