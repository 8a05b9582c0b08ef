// demo.js: the main job of this library on real input, start to end.
//
// Train a small classifier on handwritten digits, freeze it, adapt it with DoRALinear to the photographic negatives of
// the digits, merge the adapter, and run the merged model in fp32, fp16, fp8 and NVFP4.
import { mkdtemp, rm, stat } from 'node:fs/promises'
import os from 'node:os'
import path from 'node:path'
import { DoRALinear, HardwareInfo, openKernels, storedBytes, storeWeight, Tensor } from 'dgx-spark'
import { imageSize, loadDigits, negatives, permutation, random, select } from './data.js'
import {
  AdamW,
  accuracy,
  classes,
  crossEntropy,
  hidden,
  infer,
  Linear,
  relu,
  reluBackward,
} from './network.js'

/** @import { BackendName, Kernels, StoredWeight } from 'dgx-spark' */
/** @import { Digits } from './data.js' */
/** @import { Layer } from './network.js' */

/**
 * @typedef {object} Progress called as the demo goes on
 * @property {(name: string, steps: number) => void} begin a stage of so many steps
 * @property {(loss: number) => void} step one training step is done
 * @property {() => void} end the stage is done
 */

/** @typedef {Awaited<ReturnType<typeof runDemo>>} DemoResult */

const batch = 64
const rank = 8
const baseEpochs = 6
const adapterEpochs = 10

/**
 * Runs the demo.
 * @param {{ backend?: BackendName }} options
 * @param {Progress} progress
 */
export async function runDemo(options, progress) {
  const started = performance.now()
  const kernels = await openKernels(options)
  const { train, test } = await loadDigits()
  const inverted = { train: negatives(train), test: negatives(test) }

  const base = await trainBase(kernels, train, progress)
  const adapted = await adapt(base, inverted.train, kernels, progress)
  const adapter = await describeAdapter(base, adapted)

  const before = { digits: await accuracy(base, test), negatives: await accuracy(base, inverted.test) }
  const after = {
    digits: await accuracy(layers(adapted), test),
    negatives: await accuracy(layers(adapted), inverted.test),
  }

  const unmerged = await infer(layers(adapted), inverted.test.pixels, inverted.test.count)
  const merged = await mergeAll(adapted, base)
  const mergedLogits = await infer(frozen(kernels, merged, 'fp32'), inverted.test.pixels, inverted.test.count)
  const modes = []
  for (const precision of /** @type {const} */ (['fp32', 'fp16', 'fp8', 'nvfp4'])) {
    modes.push(await measureMode(kernels, merged, precision, inverted.test))
  }
  for (const layer of adapted) layer.dispose()
  return {
    backend: kernels.backend,
    device: await deviceName(kernels),
    digits: { train: train.count, test: test.count },
    accuracy: { before, after },
    adapter,
    mergeError: relativeError(mergedLogits, unmerged),
    modes,
    seconds: (performance.now() - started) / 1000,
  }
}

/**
 * The base classifier 784 -> hidden -> 10, trained on `digits`.
 * @param {Kernels} kernels
 * @param {Digits} digits
 * @param {Progress} progress
 * @returns {Promise<[Linear, Linear]>}
 */
async function trainBase(kernels, digits, progress) {
  const first = new Linear(kernels, imageSize, hidden, 2)
  const second = new Linear(kernels, hidden, classes, 3)
  const optimizer = new AdamW(kernels, [first.weight, first.bias, second.weight, second.bias], 1e-3)
  await epochs('base', digits, baseEpochs, progress, async ({ pixels, labels, count }) => {
    const h = relu(await first.forward(pixels, count))
    const { loss, dlogits } = await crossEntropy(kernels, await second.forward(h, count), labels)
    const top = await second.backward(h, dlogits, count, true)
    const bottom = await first.backward(
      pixels,
      reluBackward(/** @type {Float32Array} */ (top.dx), h),
      count,
      false,
    )
    await optimizer.update([bottom.dweight, bottom.dbias, top.dweight, top.dbias])
    return loss
  })
  return [first, second]
}

/**
 * DoRA adapters on both layers of the frozen base, trained on `digits`.
 * @param {[Linear, Linear]} base
 * @param {Digits} digits
 * @param {Kernels} kernels
 * @param {Progress} progress
 */
async function adapt(base, digits, kernels, progress) {
  const [first, second] = await Promise.all(
    base.map((linear, i) => {
      const weight = Tensor.from(linear.weight, { shape: [linear.outputs, linear.inputs] })
      const bias = Tensor.from(linear.bias)
      return DoRALinear.fromLinear(
        { weight, bias },
        { rank, alpha: 2 * rank, seed: 4 + i, backend: kernels.backend },
      )
    }),
  )
  const trained = [first, second].flatMap(layer => layer.parameters())
  const optimizer = new AdamW(
    kernels,
    trained.map(parameter => parameter.data),
    5e-3,
  )
  await epochs('adapter', digits, adapterEpochs, progress, async ({ pixels, labels, count }) => {
    const x = Tensor.from(pixels, { shape: [count, imageSize] })
    const h = relu((await first.forward(x, { training: true })).data)
    const logits = await second.forward(Tensor.from(h, { shape: [count, hidden] }), { training: true })
    const { loss, dlogits } = await crossEntropy(kernels, logits.data, labels)
    const top = await second.backward(Tensor.from(dlogits, { shape: [count, classes] }))
    const dh = Tensor.from(reluBackward(/** @type {Tensor<'f32'>} */ (top.x).data, h), {
      shape: [count, hidden],
    })
    const bottom = await first.backward(dh)
    await optimizer.update([bottom, top].flatMap(({ a, b, magnitude }) => [a.data, b.data, magnitude.data]))
    return loss
  })
  return /** @type {[DoRALinear, DoRALinear]} */ ([first, second])
}

/**
 * Calls `step` with shuffled batches of `digits`; it returns the loss.
 * @param {string} name
 * @param {Digits} digits
 * @param {number} count
 * @param {Progress} progress
 * @param {(batch: Digits) => Promise<number>} step
 */
async function epochs(name, digits, count, progress, step) {
  const batches = Math.floor(digits.count / batch)
  const next = random(5)
  progress.begin(name, count * batches)
  for (let epoch = 0; epoch < count; ++epoch) {
    const order = permutation(digits.count, next)
    for (let i = 0; i < batches; ++i) {
      progress.step(await step(select(digits, order.subarray(i * batch, (i + 1) * batch))))
    }
  }
  progress.end()
}

/** DoRALinear layers as plain layers over flat arrays. @param {[DoRALinear, DoRALinear]} adapted */
function layers(adapted) {
  const plain = adapted.map(layer => ({
    inputs: layer.inFeatures,
    outputs: layer.outFeatures,
    forward: async (/** @type {Float32Array} */ x, /** @type {number} */ tokens) =>
      /** @type {Float32Array} */ (
        (await layer.forward(Tensor.from(x, { shape: [tokens, layer.inFeatures] }))).data
      ),
  }))
  return /** @type {[Layer, Layer]} */ (plain)
}

/**
 * Saves the adapters in PEFT's format and weighs them.
 * @param {[Linear, Linear]} base
 * @param {[DoRALinear, DoRALinear]} adapted
 */
async function describeAdapter(base, adapted) {
  const folder = await mkdtemp(path.join(os.tmpdir(), 'dgx-spark-demo-'))
  try {
    let bytes = 0
    for (const [i, layer] of adapted.entries()) {
      const target = path.join(folder, `layer${i}`)
      await layer.save(target, { module: `layers.${i}` })
      bytes += (await stat(path.join(target, 'adapter_model.safetensors'))).size
    }
    const baseBytes = base.reduce((sum, { weight, bias }) => sum + weight.byteLength + bias.byteLength, 0)
    const parameters = adapted
      .flatMap(layer => layer.parameters())
      .reduce((sum, { data }) => sum + data.length, 0)
    return { rank, parameters, bytes, baseBytes, share: bytes / baseBytes }
  } finally {
    await rm(folder, { recursive: true, force: true })
  }
}

/** Merged f32 weights and the biases. @param {[DoRALinear, DoRALinear]} adapted @param {[Linear, Linear]} base */
async function mergeAll(adapted, base) {
  const merged = await Promise.all(adapted.map(layer => layer.mergedWeight()))
  return merged.map((weight, i) => ({ weight, bias: base[i].bias }))
}

/**
 * The merged layers with their weights stored in `precision`.
 * @param {Kernels} kernels
 * @param {{ weight: Tensor, bias: Float32Array }[]} merged
 * @param {'fp32' | 'fp16' | 'fp8' | 'nvfp4'} precision
 */
function frozen(kernels, merged, precision) {
  const stored = merged.map(({ weight, bias }) => {
    const [rows, cols] = /** @type {[number, number]} */ (weight.shape)
    const record = storeWeight(weight, precision)
    return {
      inputs: cols,
      outputs: rows,
      record,
      forward: async (/** @type {Float32Array} */ x, /** @type {number} */ tokens) => {
        const y = new Float32Array(tokens * rows)
        await kernels.run('linear', { weight: record, tokens, x, bias, y })
        return y
      },
    }
  })
  return /** @type {[Layer & { record: StoredWeight }, Layer & { record: StoredWeight }]} */ (stored)
}

/**
 * Accuracy, size and the latency of single digits.
 * @param {Kernels} kernels
 * @param {{ weight: Tensor, bias: Float32Array }[]} merged
 * @param {'fp32' | 'fp16' | 'fp8' | 'nvfp4'} precision
 * @param {Digits} digits
 */
async function measureMode(kernels, merged, precision, digits) {
  const model = frozen(kernels, merged, precision)
  const times = []
  for (let i = 0; i < 320; ++i) {
    const x = digits.pixels.slice(i * imageSize, (i + 1) * imageSize)
    const start = performance.now()
    await infer(model, x, 1)
    if (i >= 20) times.push(performance.now() - start)
  }
  times.sort((a, b) => a - b)
  return {
    precision,
    accuracy: await accuracy(model, digits),
    bytes: model.reduce((sum, { record }) => sum + storedBytes(record), 0),
    p50Ms: times[Math.floor(0.5 * times.length)],
    p99Ms: times[Math.floor(0.99 * times.length)],
  }
}

/** The GPU or the processor that computes. @param {Kernels} kernels */
async function deviceName(kernels) {
  const { gpus, backend } = await HardwareInfo.detect()
  const gpu = kernels.backend === 'cuda' && gpus[backend.gpu ?? 0]?.name
  return gpu || `${os.cpus()[0]?.model.trim() || 'unknown processor'}, ${os.cpus().length} cores`
}

/** max|a - b| / max|b|. @param {Float32Array} a @param {Float32Array} b */
function relativeError(a, b) {
  const difference = a.reduce((worst, value, i) => Math.max(worst, Math.abs(value - b[i])), 0)
  return difference / b.reduce((largest, value) => Math.max(largest, Math.abs(value)), 0)
}
