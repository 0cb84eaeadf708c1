from __future__ import annotations

import itertools

import numpy as np
import pytest

from orbit_runner.models.neumf import neumf

USERS, ITEMS = np.array([0, 3, 6, 3], "int32"), np.array([4, 0, 1, 1], "int32")


def _weights(model):
    return {variable.name.partition(":")[0]: variable.numpy() for variable in model.variables}


def _expected(kind, weights, depth):
    parts = []
    if kind != "mlp":
        parts.append(weights["mf_user/embeddings"][USERS] * weights["mf_item/embeddings"][ITEMS])
    if kind != "gmf":
        x = np.concatenate(
            [weights["mlp_user/embeddings"][USERS], weights["mlp_item/embeddings"][ITEMS]], 1
        )
        for layer in range(1, depth + 1):
            name = f"mlp_dense{layer}"
            x = np.maximum(x @ weights[f"{name}/kernel"] + weights[f"{name}/bias"], 0)
        parts.append(x)
    top = np.concatenate(parts, 1) @ weights["logit/kernel"] + weights["logit/bias"]
    return top[:, 0]


@pytest.mark.parametrize("kind", ["gmf", "mlp", "neumf"])
@pytest.mark.parametrize("sizes", [(12, 6, 4), (8,)])
def test_each_kind_computes_its_formula(kind, sizes):
    model = neumf(num_users=7, num_items=5, kind=kind, mf_dim=3, layer_sizes=sizes)
    generator = np.random.default_rng(1)
    for variable in model.variables:
        variable.assign(generator.normal(size=variable.shape))
    logits = model({"user": USERS, "item": ITEMS}).numpy()
    assert (logits.shape, logits.dtype) == ((4,), np.float32)
    expected = _expected(kind, _weights(model), len(sizes) - 1)
    np.testing.assert_allclose(logits, expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("kind", ["gmf", "mlp", "neumf"])
@pytest.mark.parametrize(
    ("users", "items", "factors", "sizes"),
    [(6040, 3706, 8, (64, 32, 16, 8)), (943, 1682, 16, (32,)), (10, 9, 1, (4, 7))],
)
def test_parameter_count_matches_the_formula(kind, users, items, factors, sizes):
    gmf, mlp = kind != "mlp", kind != "gmf"
    expected = gmf * (users + items) * factors + mlp * (users + items) * sizes[0] // 2
    if mlp:
        expected += sum((a + 1) * b for a, b in itertools.pairwise(sizes))
    expected += gmf * factors + mlp * sizes[-1] + 1
    model = neumf(num_users=users, num_items=items, kind=kind, mf_dim=factors, layer_sizes=sizes)
    assert model.count_params() == expected
    if (kind, users) == ("neumf", 6040):
        assert expected == 392_601


@pytest.mark.parametrize(("mf", "mlp"), [(0.0, 0.0), (0.3, 0.0), (0.0, 0.2), (0.3, 0.2)])
def test_regularization_penalizes_the_squared_weights(mf, mlp):
    model = neumf(num_users=7, num_items=5, mf_regularization=mf, mlp_regularization=mlp)
    squares = {name: float((value**2).sum()) for name, value in _weights(model).items()}
    expected = mf * sum(v for k, v in squares.items() if k.startswith("mf_")) + mlp * sum(
        v for k, v in squares.items() if k.startswith("mlp_") and not k.endswith("bias")
    )
    np.testing.assert_allclose(sum(float(loss) for loss in model.losses), expected, rtol=1e-5)


def test_logits_are_float32_under_every_policy(policy):
    model = neumf(num_users=7, num_items=5)
    assert model({"user": USERS, "item": ITEMS}).dtype == "float32"


def test_unknown_kind_and_odd_layer_size_are_rejected():
    with pytest.raises(ValueError, match=r"`kind` \('both'\) must be gmf, mlp or neumf"):
        neumf(num_users=2, num_items=2, kind="both")
    with pytest.raises(ValueError, match=r"`layer_sizes` .* begin with an even number"):
        neumf(num_users=2, num_items=2, layer_sizes=(7, 3))
