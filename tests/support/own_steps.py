"""Models of Keras 3 and Keras 2 that define their steps themselves, as Keras's examples do."""

from __future__ import annotations

from typing import Any

import keras
import numpy as np
import tensorflow as tf
import tf_keras
from keras import layers, ops

_LATENT, _PIXELS, _CLASSES = 3, 16, 3


def images() -> np.ndarray:
    """Returns images without labels, float32 [64, 16]."""
    return np.random.default_rng(0).random((64, _PIXELS)).astype(np.float32)


def labeled() -> tuple[np.ndarray, np.ndarray]:
    """Returns points and their classes."""
    x = np.random.default_rng(0).normal(size=(64, 4)).astype(np.float32)
    return x, x[:, :_CLASSES].argmax(axis=1)


class GAN(keras.Model):
    """A generator and a discriminator, each with an optimizer and the mean of its loss."""

    def __init__(self, discriminator: keras.Model, generator: keras.Model) -> None:
        super().__init__()
        self.discriminator = discriminator
        self.generator = generator
        self.seed_generator = keras.random.SeedGenerator(1337)
        self.d_loss_metric = keras.metrics.Mean(name="d_loss")
        self.g_loss_metric = keras.metrics.Mean(name="g_loss")

    def compile(self, d_optimizer: Any, g_optimizer: Any, loss_fn: Any) -> None:
        """Sets two optimizers and the loss."""
        super().compile()
        self.d_optimizer = d_optimizer
        self.g_optimizer = g_optimizer
        self.loss_fn = loss_fn

    @property
    def metrics(self) -> list[Any]:
        """The means of both losses."""
        return [self.d_loss_metric, self.g_loss_metric]

    def call(self, inputs: Any) -> Any:
        """Returns what the discriminator says about images."""
        return self.discriminator(inputs)

    def train_step(self, real_images: Any) -> dict[str, Any]:
        """Trains the discriminator on real and generated images, then the generator."""
        count = ops.shape(real_images)[0]
        noise = keras.random.normal((count, _LATENT), seed=self.seed_generator)
        generated = self.generator(noise)
        mixed = ops.concatenate([generated, real_images], axis=0)
        labels = ops.concatenate([ops.ones((count, 1)), ops.zeros((count, 1))], axis=0)
        labels += 0.05 * keras.random.uniform(ops.shape(labels), seed=self.seed_generator)

        with tf.GradientTape() as tape:
            d_loss = self.loss_fn(labels, self.discriminator(mixed))
        weights = self.discriminator.trainable_weights
        self.d_optimizer.apply(tape.gradient(d_loss, weights), weights)

        noise = keras.random.normal((count, _LATENT), seed=self.seed_generator)
        misleading = ops.zeros((count, 1))
        with tf.GradientTape() as tape:
            g_loss = self.loss_fn(misleading, self.discriminator(self.generator(noise)))
        weights = self.generator.trainable_weights
        self.g_optimizer.apply(tape.gradient(g_loss, weights), weights)

        self.d_loss_metric.update_state(d_loss)
        self.g_loss_metric.update_state(g_loss)
        return {"d_loss": self.d_loss_metric.result(), "g_loss": self.g_loss_metric.result()}


def gan() -> keras.Model:
    """Returns a compiled GAN."""
    discriminator = keras.Sequential(
        [keras.Input((_PIXELS,)), layers.Dense(8), layers.LeakyReLU(0.2), layers.Dense(1)]
    )
    generator = keras.Sequential(
        [
            keras.Input((_LATENT,)),
            layers.Dense(8, activation="relu"),
            layers.BatchNormalization(),
            layers.Dense(_PIXELS, activation="sigmoid"),
        ]
    )
    model = GAN(discriminator, generator)
    model.compile(
        d_optimizer=keras.optimizers.Adam(learning_rate=0.003),
        g_optimizer=keras.optimizers.Adam(learning_rate=0.002),
        loss_fn=keras.losses.BinaryCrossentropy(from_logits=True),
    )
    return model


class Distiller(keras.Model):
    """A student that learns from labels and from what a teacher says."""

    def __init__(self, student: keras.Model, teacher: keras.Model) -> None:
        super().__init__()
        self.teacher = teacher
        self.student = student

    def compile(
        self,
        optimizer: Any,
        metrics: Any,
        student_loss_fn: Any,
        distillation_loss_fn: Any,
        alpha: float = 0.1,
        temperature: float = 3.0,
    ) -> None:
        """Sets the losses, the share `alpha` of the first, and how soft the second one is."""
        super().compile(optimizer=optimizer, metrics=metrics)
        self.student_loss_fn = student_loss_fn
        self.distillation_loss_fn = distillation_loss_fn
        self.alpha = alpha
        self.temperature = temperature

    def compute_loss(
        self,
        x: Any = None,
        y: Any = None,
        y_pred: Any = None,
        sample_weight: Any = None,
        allow_empty: bool = False,
    ) -> Any:
        """Returns the sum of both losses."""
        teacher_pred = self.teacher(x, training=False)
        student_loss = self.student_loss_fn(y, y_pred)
        distillation_loss = self.distillation_loss_fn(
            ops.softmax(teacher_pred / self.temperature, axis=1),
            ops.softmax(y_pred / self.temperature, axis=1),
        ) * (self.temperature**2)
        return self.alpha * student_loss + (1 - self.alpha) * distillation_loss

    def call(self, x: Any) -> Any:
        """Returns what the student says."""
        return self.student(x)


def distiller() -> keras.Model:
    """Returns a compiled student and its teacher, whose layers are not trained."""

    def network(units: int) -> keras.Model:
        hidden = layers.Dense(units, activation="relu")
        return keras.Sequential([keras.Input((4,)), hidden, layers.Dense(_CLASSES)])

    teacher = network(8)
    teacher.trainable = False
    model = Distiller(network(4), teacher)
    model.compile(
        optimizer=keras.optimizers.Adam(0.01),
        metrics=[keras.metrics.SparseCategoricalAccuracy()],
        student_loss_fn=keras.losses.SparseCategoricalCrossentropy(from_logits=True),
        distillation_loss_fn=keras.losses.KLDivergence(),
    )
    return model


class Guided(keras.Model):
    """A classifier whose step is that of Keras's guide, with the largest gradient as a log."""

    def train_step(self, data: Any) -> dict[str, Any]:
        """Trains on a batch with labels."""
        x, y = data
        with tf.GradientTape() as tape:
            y_pred = self(x, training=True)
            loss = self.compute_loss(y=y, y_pred=y_pred)
        trainable = self.trainable_variables
        gradients = tape.gradient(loss, trainable)
        self.optimizer.apply(gradients, trainable)
        for metric in self.metrics:
            if metric.name == "loss":
                metric.update_state(loss)
            else:
                metric.update_state(y, y_pred)
        largest = ops.max([ops.max(ops.absolute(gradient)) for gradient in gradients])
        results = {metric.name: metric.result() for metric in self.metrics}
        return {**results, "largest_gradient": largest}


def guided() -> keras.Model:
    """Returns a compiled functional model with a step of its own."""
    inputs = keras.Input((4,))
    x = layers.BatchNormalization()(layers.Dense(8, activation="relu")(inputs))
    model = Guided(inputs, layers.Dense(_CLASSES, activation="softmax")(x))
    model.compile(
        keras.optimizers.SGD(0.05, momentum=0.9),
        "sparse_categorical_crossentropy",
        metrics=["accuracy"],
    )
    return model


class Contrastive(tf_keras.Model):
    """Two noisy views of each example that find each other in a batch, for Keras 2."""

    def __init__(self, encoder: tf_keras.Model, temperature: float = 0.5, noise: float = 0.1):
        super().__init__()
        self.encoder = encoder
        self.temperature = temperature
        self.noise = noise
        self.contrastive_loss_tracker = tf_keras.metrics.Mean(name="c_loss")
        self.contrastive_accuracy = tf_keras.metrics.SparseCategoricalAccuracy(name="c_acc")

    @property
    def metrics(self) -> list[Any]:
        """The mean of the loss, and how often a view finds the other one."""
        return [self.contrastive_loss_tracker, self.contrastive_accuracy]

    def call(self, inputs: Any, training: bool = False) -> Any:
        """Returns the embeddings."""
        return self.encoder(inputs, training=training)

    def _views(self, x: Any) -> tuple[Any, Any]:
        first, second = (
            self.encoder(x + self.noise * tf.random.normal(tf.shape(x)), training=True)
            for _ in range(2)
        )
        return tf.math.l2_normalize(first, axis=1), tf.math.l2_normalize(second, axis=1)

    def train_step(self, data: Any) -> dict[str, Any]:
        """Trains on a batch of examples; their labels are not used."""
        x, _, _ = tf_keras.utils.unpack_x_y_sample_weight(data)
        with tf.GradientTape() as tape:
            first, second = self._views(x)
            similarities = tf.matmul(first, second, transpose_b=True) / self.temperature
            labels = tf.range(tf.shape(x)[0])
            loss = tf.reduce_mean(
                tf_keras.losses.sparse_categorical_crossentropy(
                    labels, similarities, from_logits=True
                )
            )
        gradients = tape.gradient(loss, self.encoder.trainable_weights)
        pairs = zip(gradients, self.encoder.trainable_weights, strict=True)
        self.optimizer.apply_gradients(pairs)
        self.contrastive_loss_tracker.update_state(loss)
        self.contrastive_accuracy.update_state(labels, similarities)
        return {metric.name: metric.result() for metric in self.metrics}

    def test_step(self, data: Any) -> dict[str, Any]:
        """Evaluates a batch of examples."""
        x, _, _ = tf_keras.utils.unpack_x_y_sample_weight(data)
        embeddings = tf.math.l2_normalize(self.encoder(x, training=False), axis=1)
        similarities = tf.matmul(embeddings, embeddings, transpose_b=True) / self.temperature
        labels = tf.range(tf.shape(x)[0])
        losses = tf_keras.losses.sparse_categorical_crossentropy(
            labels, similarities, from_logits=True
        )
        self.contrastive_loss_tracker.update_state(tf.reduce_mean(losses))
        self.contrastive_accuracy.update_state(labels, similarities)
        return {metric.name: metric.result() for metric in self.metrics}


def contrastive(noise: float = 0.1) -> tf_keras.Model:
    """Returns a compiled model of Keras 2 that learns without labels."""
    dense = tf_keras.layers.Dense
    encoder = tf_keras.Sequential(
        [tf_keras.layers.Input((_PIXELS,)), dense(8, activation="relu"), dense(4)]
    )
    model = Contrastive(encoder, noise=noise)
    model.compile(optimizer=tf_keras.optimizers.Adam(0.01))
    return model


def contrastive_without_noise() -> tf_keras.Model:
    """Returns the same model with equal views."""
    return contrastive(noise=0.0)
