from __future__ import annotations

import dataclasses
import json

import numpy as np
import pytest
import torch
from safetensors import safe_open
from safetensors.torch import save_file

from likelyshot.confidence.held_out import support_temperature
from likelyshot.confidence.novelty import learn_novelty
from likelyshot.data.features import Base, Features
from likelyshot.data.files import write_container
from likelyshot.errors import InputError
from likelyshot.methods import METHODS
from likelyshot.methods.binding import needs
from likelyshot.own_data.model import FORM, Model, wants_rectified


def examples(features, ways=4, shots=3):
    rows = torch.cat([torch.arange(40 * k, 40 * k + shots) for k in range(ways)])
    return features.vectors[rows], [f"class {int(label)}" for label in features.labels[rows]]


def pile(features, ways=4, count=30):
    """Vectors and true classes, none of them among the examples."""
    rows = torch.tensor([40 * (i % ways) + 5 + i // ways for i in range(count)])
    return features.vectors[rows], [f"class {int(label)}" for label in features.labels[rows]]


@pytest.fixture
def model(features):
    return Model.fit(*examples(features))


@pytest.mark.parametrize(
    ("count", "method"), [(30, "likelihood_mixture"), (20, "likelihood_mixture"), (19, "likelihood"), (1, "likelihood")]
)
def test_answers_are_the_softmax_of_the_scores_of_the_method_for_the_size(model, features, count, method):
    query, _ = pile(features, count=count)
    answers = model.answer(query)
    automatic = METHODS[method]
    scores = automatic(model.support, model.labels, query, n_ways=4).double()
    temperature = support_temperature(automatic, model.support, model.labels, 4, query=query)
    raised = (scores / temperature).numpy()
    wanted = np.exp(raised - raised.max(1, keepdims=True))
    np.testing.assert_allclose(answers.probabilities, wanted / wanted.sum(1, keepdims=True), rtol=1e-3, atol=1e-5)
    assert model.method_for(count) == method


def test_most_answers_are_right(model, features):
    query, truth = pile(features, count=60)
    assert np.mean([a == b for a, b in zip(model.answer(query).predicted, truth, strict=True)]) > 0.8


@pytest.mark.parametrize("method", sorted(name for name in METHODS if "head" not in needs(name)))
def test_every_method_classifies(method, features, validation):
    query, truth = pile(features)
    params = {"steps": 50} if "tim" in method else {}
    model = Model.fit(*examples(features), method=method, params=params, base=Base.of(validation))
    answers = model.answer(query)
    np.testing.assert_allclose(answers.probabilities.sum(1), 1)
    assert np.mean([a == b for a, b in zip(answers.predicted, truth, strict=True)]) > 0.5


def test_masked_rows_and_texts_are_refused(model, features):
    rows = features.vectors[:3].numpy()
    for wrong in (np.ma.masked_array(rows, mask=rows > rows.mean()), [["a"] * rows.shape[1]]):
        with pytest.raises(InputError, match=r"masked entries|expected vectors of numbers"):
            model.answer(wrong)


def test_a_method_without_its_statistics_is_refused(features):
    with pytest.raises(InputError, match="simpleshot needs the mean of base features"):
        Model.fit(*examples(features), method="simpleshot")
    with pytest.raises(InputError, match="label more"):
        Model.fit(*examples(features, shots=1), method="combined").answer(pile(features)[0])


def test_parameters_reach_the_method(features):
    query, _ = pile(features)
    changed = Model.fit(*examples(features), method="mll", params={"lambda_max": 3.0, "normalise": False})
    wanted = METHODS["mll"](changed.support, changed.labels, query, n_ways=4, lambda_max=3.0, normalise=False)
    scores = torch.cat([scores for _, scores in changed.scores(query.numpy())()])
    torch.testing.assert_close(scores, wanted)
    automatic = Model.fit(*examples(features), params={"iterations": 3})  # of one of the two methods
    assert automatic.params_for("likelihood_mixture")["iterations"] == 3
    assert "iterations" not in automatic.params_for("likelihood")


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"method": "mlll"}, "unknown method 'mlll': did you mean 'mll'"),
        ({"method": "feat"}, "expected a method without a trained head, got 'feat'"),
        ({"method": "feat:best.safetensors"}, "expected a method without a trained head"),
        ({"method": "mll", "params": {"eta": 0.1}}, "mll has no parameter 'eta'"),
        ({"reject": 1.0}, "rejection rate"),
        ({"reject": -0.1}, "rejection rate"),
        ({"reject": float("nan")}, "rejection rate"),
    ],
)
def test_what_makes_no_sense_is_refused(features, options, words):
    with pytest.raises(InputError, match=words):
        Model.fit(*examples(features), **options)


def test_bad_examples_are_refused(features):
    vectors, labels = examples(features)
    with pytest.raises(InputError, match="two classes or more"):
        Model.fit(vectors, ["one"] * len(vectors))
    with pytest.raises(InputError, match="finite numbers"):
        Model.fit(torch.full_like(vectors, torch.nan), labels)
    with pytest.raises(InputError, match="one label per row"):
        Model.fit(vectors, labels[:-1])


def test_bad_queries_are_refused(model, features):
    query, _ = pile(features)
    for bad, words in (
        (query[:, :-1], r"expected vectors of shape \(n, 12\)"),
        (query[:0], r"expected vectors of shape"),
        (torch.where(torch.arange(30)[:, None] == 7, torch.nan, query), "row 7 is all zeros or not"),
        (torch.where(torch.arange(30)[:, None] == 7, 0.0, query), "row 7 is all zeros or not"),
    ):
        with pytest.raises(InputError, match=words):
            model.answer(bad)
    with pytest.raises(InputError, match="non-negative"):
        model.answer(-query)


def test_signed_vectors_are_rectified_where_the_method_needs_it(features):
    vectors, labels = examples(features)
    query, _ = pile(features)
    assert Model.fit(vectors - 0.2, labels).rectified
    assert not Model.fit(vectors, labels).rectified
    assert not Model.fit(vectors - 0.2, labels, method="cosine").rectified
    assert {name for name in METHODS if "head" not in needs(name) and wants_rectified(name)} == {
        "mll",
        "mll_transductive",
        "likelihood",
        "likelihood_mixture",
        "combined",
        "combined_transductive",
        "pt_map",
        "protolp",
    }
    signed = Model.fit(vectors - 0.2, labels)
    split = [torch.cat([x.clamp_min(0), (-x).clamp_min(0)], 1) for x in (vectors - 0.2, query - 0.2)]
    wanted = METHODS["likelihood_mixture"](split[0], signed.labels, split[1], n_ways=4).argmax(1)
    assert signed.answer(query - 0.2).best.tolist() == wanted.tolist()


def test_rectifying_what_is_not_negative_changes_no_probability(model, features):
    query, _ = pile(features)
    other = dataclasses.replace(model, rectified=True)
    np.testing.assert_allclose(other.answer(query).probabilities, model.answer(query).probabilities, atol=1e-4)


def test_temperatures_come_from_validation_features(features, validation):
    plain, fitted = (Model.fit(*examples(features), validation=some) for some in (None, validation))
    assert set(fitted.temperatures) == {"likelihood", "likelihood_mixture"}
    query, _ = pile(features)
    scores = METHODS["likelihood_mixture"](fitted.support, fitted.labels, query, n_ways=4).double()
    wanted = (scores / fitted.temperatures["likelihood_mixture"]).softmax(1)
    np.testing.assert_allclose(fitted.answer(query).probabilities, wanted, rtol=1e-3, atol=1e-5)
    assert not np.allclose(fitted.answer(query).probabilities, plain.answer(query).probabilities, atol=1e-3)
    other = Features.from_arrays(torch.rand(40, 5), torch.arange(40) % 4)
    with pytest.raises(InputError, match="they have 5 numbers, and the labelled examples 12"):
        Model.fit(*examples(features), validation=other)
    lonely = Features.from_arrays(features.vectors[[0, 1, 40]], [0, 0, 1])
    with pytest.raises(InputError, match="2 classes, the smallest of 1"):
        Model.fit(*examples(features), validation=lonely)
    few = Features.from_arrays(features.vectors[[0, 1, 40, 41]], [0, 0, 1, 1])  # fewer ways and shots than asked for
    assert Model.fit(*examples(features), validation=few).temperatures["likelihood"] > 0


def test_rejection_is_that_of_the_novelty_score(features):
    vectors, labels = examples(features, shots=8)
    model = Model.fit(vectors, labels, reject=0.1)
    query, _ = pile(features, count=40)
    strange = query.flip(1) ** 3
    both = torch.cat([query, strange])
    answers = model.answer(both)
    novelty = learn_novelty(vectors, model.labels, 4, pile=both)
    np.testing.assert_allclose(answers.novelty, novelty.score(both), rtol=1e-4, atol=1e-5)
    assert answers.reject.tolist() == (answers.novelty > novelty.threshold(0.1)).tolist()
    assert answers.reject[40:].mean() > answers.reject[:40].mean()
    assert not dataclasses.replace(model, reject=0.0).answer(both).reject.any()


def test_a_labelled_item_of_the_pile_keeps_its_label(features):
    vectors, labels = examples(features)
    wrong = [*labels[1:], labels[0]]  # as a user may label them, whatever the pile says
    model = Model.fit(vectors, wrong, reject=0.5)
    answers = model.answer(torch.cat([pile(features)[0], vectors]))
    assert answers.predicted[30:] == [str(label) for label in wrong]
    assert (answers.probability[30:] == 1).all()
    assert not answers.reject[30:].any()
    twice = Model.fit(torch.cat([vectors, vectors[:1]]), [*labels, wrong[0] if wrong[0] != labels[0] else wrong[3]])
    assert twice.answer(vectors[:1]).probability < 1  # two labels: none is sure


def test_a_model_of_an_automatic_method_of_old_uses_the_new_one(model, tmp_path):
    facts = {key: getattr(model, key) for key in ("classes", "method", "encoder", "encoder_digest", "reject", "seed")}
    facts |= {"rectified": False, "params": {"shrinkage": 1.0, "eta": 0.3}, "temperatures": {"mll": 3.0}}
    path = write_container(
        tmp_path / "m.safetensors", {"support": model.support, "labels": model.labels}, facts, form=FORM
    )
    read = Model.load(path)
    assert (read.params, read.temperatures, read.method_for(500)) == ({}, {}, "likelihood_mixture")


def test_an_item_on_its_own_does_not_depend_on_the_others(features):
    model = Model.fit(*examples(features, shots=8), reject=0.1)
    query, _ = pile(features, count=19)
    together = model.answer(query)
    for row in (0, 7):
        alone = model.answer(query[row : row + 1])
        np.testing.assert_allclose(alone.probabilities[0], together.probabilities[row], rtol=1e-4)
        np.testing.assert_allclose(alone.novelty[0], together.novelty[row], rtol=1e-4, atol=1e-6)


def test_double_precision_is_as_good(model, features):
    query, _ = pile(features)
    pieces = list(model.scores(query.double().numpy())())
    judge = model.judge("likelihood_mixture", model.sample(query.double().numpy()))
    judged = judge.answers(*pieces[0], [str(i) for i in range(30)])
    np.testing.assert_allclose(judged.probabilities, model.answer(query).probabilities, atol=1e-3)


def test_unequal_supports_and_a_class_with_one_example(features):
    rows = [0, 40, 41, 42, 43, 44, 80, 81]
    model = Model.fit(features.vectors[rows], [str(label) for label in features.labels[rows].tolist()])
    assert len(model.answer(pile(features, ways=3)[0])) == 30


MISSING = object()


class TestOnDisk:
    def test_what_is_read_is_what_was_written(self, features, validation, tmp_path):
        made = Model.fit(
            *examples(features),
            method="bavardage",
            params={"iterations": 3},
            base=Base.of(validation),
            encoder="an encoder",
            encoder_digest="c0ffee",
            reject=0.1,
            seed=7,
        )
        read = Model.load(made.save(tmp_path / "m.safetensors"))
        for field in dataclasses.fields(Model):
            one, two = getattr(made, field.name), getattr(read, field.name)
            if isinstance(one, torch.Tensor):
                assert torch.equal(one, two)
            elif field.name == "statistics":
                assert one.keys() == two.keys() == {"base_mean", "base_within"}
                assert all(torch.equal(one[key], two[key]) for key in one)
            else:
                assert one == two, field.name
        query, _ = pile(features)
        assert np.array_equal(made.answer(query).probabilities, read.answer(query).probabilities)

    def test_tuples_among_parameters_survive(self, features, tmp_path):
        made = Model.fit(*examples(features), method="combined", params={"metrics": ("cosine", "mll")})
        read = Model.load(made.save(tmp_path / "m.safetensors"))
        assert read.params == {"metrics": ("cosine", "mll")}
        query, _ = pile(features)
        assert np.array_equal(made.answer(query).probabilities, read.answer(query).probabilities)

    def test_it_says_what_it_is(self, model, tmp_path):
        with safe_open(model.save(tmp_path / "m.safetensors"), "pt") as file:
            assert json.loads(file.metadata()["likelyshot.model/2"])["classes"] == list(model.classes)

    def test_files_of_version_1_are_read(self, model, features, tmp_path):
        path = self.version_1(model, tmp_path / "m.safetensors", {})
        query, _ = pile(features)
        assert np.array_equal(Model.load(path).answer(query).probabilities, model.answer(query).probabilities)
        for change in ({"reject": "often"}, {"classes": None}):
            with pytest.raises(InputError, match="is damaged"):
                Model.load(self.version_1(model, path, change))

    def version_1(self, model, path, change):
        """Write a file as versions up to 0.3 did."""
        facts = {**self.facts(model), **change}
        metadata = {"format": "likelyshot.model/1", "model": json.dumps(facts)}
        save_file({"support": model.support, "labels": model.labels}, path, metadata)
        return path

    def facts(self, model):
        keys = [
            "classes",
            "method",
            "params",
            "temperatures",
            "encoder",
            "encoder_digest",
            "rectified",
            "reject",
            "seed",
        ]
        return {key: getattr(model, key) for key in keys}

    def test_any_class_names(self, features, tmp_path):
        vectors, _ = examples(features)
        names = ["=1+1", "a\nb", "", "🦉"]
        labels = [names[i // 3] for i in range(12)]
        read = Model.load(Model.fit(vectors, labels).save(tmp_path / "m.safetensors"))
        assert sorted(read.classes) == sorted(names)

    def write(self, model, path, facts=None, tensors=None):
        """Write a file with other facts or tensors, or without some."""
        facts = {**self.facts(model), **(facts or {})}
        tensors = {"support": model.support, "labels": model.labels, **(tensors or {})}
        facts, tensors = ({key: x for key, x in each.items() if x is not MISSING} for each in (facts, tensors))
        return write_container(path, tensors, facts, form=FORM)

    @pytest.mark.parametrize(
        ("fact", "value", "words"),
        [
            ("method", "nothing", "unknown method"),
            ("method", 3, "method is a whole number, not text or null"),
            ("classes", ["a"], "a label for each"),
            ("classes", ["a", "b", "c", "d", "e"], "an example of each"),
            ("classes", [1, 2, 3, 4], "classes is a whole number, not text"),
            ("temperatures", {"likelihood": 0}, "temperature of likelihood"),
            ("temperatures", {"mll": "warm"}, "temperatures is text, not a number"),
            ("params", {"lambda": 3}, "no parameter 'lambda'"),
            ("params", {"iterations": "many"}, "iterations of likelihood"),
            ("params", {"lambda_max": {"a": 1}}, "is a table, not"),
            ("reject", 7, "rejection rate"),
            ("seed", 2**70, "seed must be"),
            ("seed", -1, "seed must be"),
            ("extra", 1, "the key 'extra' is unknown"),
        ],
    )
    def test_facts_that_do_not_hold_are_refused(self, model, tmp_path, fact, value, words):
        path = self.write(model, tmp_path / "m.safetensors", {fact: value})
        with pytest.raises(InputError, match=words) as error:
            Model.load(path)
        assert str(path) in str(error.value)

    def test_every_fact_must_be_there_and_of_its_type(self, model, tmp_path):
        path = tmp_path / "m.safetensors"
        for fact in self.facts(model):
            for wrong in (MISSING, [[]], {"a": []}, 1.5e300):
                self.write(model, path, {fact: wrong})
                with pytest.raises(InputError, match=r"m\.safetensors"):
                    Model.load(path)

    @pytest.mark.parametrize(
        ("name", "tensor", "words"),
        [
            ("support", torch.full((12, 12), torch.nan), "finite numbers"),
            ("support", torch.rand(11, 12), "one label per row"),
            ("support", MISSING, "expected the tensors of a model"),
            ("labels", torch.arange(12), "a label for each"),
            ("labels", torch.zeros(12), "int64 labels"),
            ("labels", MISSING, "expected the tensors of a model"),
            ("extra", torch.zeros(1), "expected the tensors of a model"),
            ("base_mean", torch.full((12,), torch.inf), "got infinity or NaN"),
            ("base_mean", torch.rand(5), r"shape \(12,\) for base_mean, but got \(5,\)"),
            ("base_within", torch.rand(12, 5), r"shape \(12, 12\) for base_within"),
        ],
    )
    def test_tensors_that_do_not_hold_are_refused(self, model, tmp_path, name, tensor, words):
        path = self.write(model, tmp_path / "m.safetensors", tensors={name: tensor})
        with pytest.raises(InputError, match=words):
            Model.load(path)

    def test_damaged_and_missing_files_are_refused(self, model, tmp_path):
        path = model.save(tmp_path / "m.safetensors")
        whole = path.read_bytes()
        for cut in (0, 5, 100, len(whole) - 1):
            path.write_bytes(whole[:cut])
            with pytest.raises(InputError, match=r"m\.safetensors"):
                Model.load(path)
        with pytest.raises(InputError, match="likelyshot fit"):
            Model.load(tmp_path / "none")
        Features.from_arrays(torch.rand(4, 3), [0, 0, 1, 1]).save(path)
        with pytest.raises(InputError, match="another kind of safetensors file"):
            Model.load(path)


def test_another_encoder_is_refused(features):
    model = Model.fit(*examples(features), encoder="mine", encoder_digest="c0ffee")
    model.check_encoder("mine", "c0ffee")
    model.check_encoder("unknown", "")
    with pytest.raises(InputError, match=r"fitted with, mine \(c0ffee\), but got yours \(dec0de\)"):
        model.check_encoder("yours", "dec0de")
