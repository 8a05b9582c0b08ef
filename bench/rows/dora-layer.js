// dora-layer.js: what DoRA costs beside the layer without it. The weight is held as a layer holds it; where it is read
// once (norm, merge, few tokens), it comes from main memory. LoRA is the same layer without norm and magnitude: the
// faster of products alone and of the DoRA kernels with a gain of 1. On a GPU products are those of bf16, as a layer of
// bf16 with activations of bf16 forms them.
import { Tensor } from 'dgx-spark'
import { decodeWeight, storeWeight } from 'dgx-spark/kernels'
import { near } from '../checks.js'
import { coldWeight } from '../cold.js'
import { faster } from '../harness.js'
import { Operands } from '../operands.js'
import { uniform } from '../random.js'
import { computeName } from './linear.js'

/** @import { DType, DTypeArray, Precision } from 'dgx-spark' */
/** @import { Kernels, Weight } from 'dgx-spark/kernels' */
/** @import { Case } from '../harness.js' */

/** @typedef {NonNullable<Case['peer']>} Side */

const size = 4096
const scale = 1
const plans = /** @type {const} */ ({
  cpu: { precision: 'fp32', compute: 'f32', tokens: [512, 1], step: 512, ranks: [16, 64] },
  cuda: { precision: 'bf16', compute: 'bf16', tokens: [1, 16], step: 8192, ranks: [] },
})
const mergeFormats = /** @type {const} */ (['bf16', 'fp16']) // beside f32

/** @param {Kernels} kernels @returns {AsyncGenerator<Case>} */
export async function* doraLayer(kernels) {
  if (kernels.backend === 'js') return
  const { precision, tokens, step, ranks } = plans[kernels.backend]
  const cold = await coldWeight(kernels, weightIn(precision))
  for (const rank of ranks) yield* norm(await Layer.create(kernels, cold.next, rank))
  const layer = await Layer.create(kernels, cold.next, 16)
  if (kernels.backend === 'cpu') yield* merge(layer)
  for (const count of tokens) yield* forward(await Passes.create(layer, count))
  yield* training(await Passes.create(layer, step))
  layer.operands.dispose()
  cold.dispose()
  if (kernels.backend === 'cpu') for (const format of mergeFormats) yield* mergeOf(kernels, weightIn(format))
}

/** @param {Precision} precision */
const weightIn = precision =>
  storeWeight(Tensor.from(uniform(size * size, 4), { shape: [size, size] }), precision, 'w')

class Layer {
  /** @param {Kernels} kernels @param {() => Weight} next @param {number} rank */
  static async create(kernels, next, rank) {
    const operands = new Operands(kernels)
    const vector = () => operands.put(new Float32Array(size).fill(1))
    const adapter = {
      rank,
      scale,
      a: await operands.put(uniform(rank * size, 5)),
      b: await operands.put(uniform(size * rank, 6)),
    }
    const state = {
      weightNorm2: await vector(),
      magnitude: await vector(),
      norm: await vector(),
      gain: await vector(),
    }
    await kernels.run('weightNorm2', { weight: next(), out: state.weightNorm2 })
    return new Layer(kernels, next, operands, adapter, state, await vector())
  }

  /**
   * @param {Kernels} kernels @param {() => Weight} next @param {Operands} operands
   * @param {{ rank: number, scale: number, a: Float32Array, b: Float32Array }} adapter
   * @param {Record<'weightNorm2' | 'magnitude' | 'norm' | 'gain', Float32Array>} state @param {Float32Array} ones
   */
  constructor(kernels, next, operands, adapter, state, ones) {
    this.kernels = kernels
    this.next = next
    this.operands = operands
    this.adapter = adapter
    this.state = state
    this.ones = ones
    this.compute = kernels.backend === 'cuda' ? plans.cuda.compute : plans.cpu.compute
  }

  /** How far a result may be off: of bf16 operands are rounded. @param {number} exact */
  tolerance(exact) {
    return this.compute === 'f32' ? exact : 5e-2
  }

  about(tokens = 0) {
    const { rank } = this.adapter
    const dtype = tokens > 0 ? computeName(this.next(), this.compute) : this.next().format
    const shape = `${tokens > 0 ? `T${tokens} ` : ''}${size}x${size} r${rank}`
    return { shape, dtype, sizes: { ...(tokens > 0 && { tokens }), rows: size, cols: size, rank } }
  }

  /** Calls one after the other; on a GPU the stream sees to that, so nothing waits. @param {...(() => Promise<unknown>)} calls */
  async inOrder(...calls) {
    if (this.kernels.backend === 'cuda') await Promise.all(calls.map(call => call()))
    else for (const call of calls) await call()
  }

  computeNorm() {
    return this.kernels.run('doraNorm', { weight: this.next(), ...this.adapter, ...this.state })
  }
}

/** @param {Layer} layer @returns {AsyncGenerator<Case>} */
async function* norm(layer) {
  const { kernels, next, adapter, state } = layer
  const tokens = adapter.rank
  const x = await layer.operands.put(uniform(tokens * size, 7))
  const y = await layer.operands.put(new Float32Array(tokens * size))
  yield {
    name: 'dora norm cold',
    ...layer.about(),
    bytes: next().data.byteLength,
    bandwidth: 'read',
    run: () => layer.computeNorm(),
    check: () => {
      near(state.norm[3], Math.hypot(...adaptedRow(layer, 3)), 1e-5)
      near(state.gain[3], 1 / (state.norm[3] ?? 0), 1e-5)
    },
    peer: { name: `GEMM T${tokens}`, run: () => kernels.run('linear', { weight: next(), tokens, x, y }) },
  }
}

/** @param {Kernels} kernels @param {Weight} stored @returns {AsyncGenerator<Case>} */
async function* mergeOf(kernels, stored) {
  const cold = await coldWeight(kernels, stored)
  const layer = await Layer.create(kernels, cold.next, 16)
  yield* merge(layer)
  layer.operands.dispose()
  cold.dispose()
}

/** Beside a copy of W in the format of the result, f32. @param {Layer} layer @returns {AsyncGenerator<Case>} */
async function* merge(layer) {
  const { kernels, next, adapter, state } = layer
  const merged = await layer.operands.put(new Float32Array(size * size))
  const srcDtype = /** @type {DType} */ (next().format)
  const copy = { srcDtype, dstDtype: /** @type {const} */ ('f32') }
  const source = () => /** @type {DTypeArray} */ (next().data)
  const count = size * size
  await layer.computeNorm()
  yield {
    name: 'dora merge cold',
    ...layer.about(),
    bytes: next().data.byteLength + merged.byteLength,
    run: () => kernels.run('doraMerge', { weight: next(), ...adapter, gain: state.gain, merged }),
    check: () => {
      near(Math.hypot(...merged.subarray(3 * size, 4 * size)), 1, 1e-4)
      near(merged[3 * size + 7], (state.gain[3] ?? 0) * (adaptedRow(layer, 3)[7] ?? 0), 1e-5)
    },
    peer: {
      name: 'copy of W',
      run: () => kernels.run('cast', { ...copy, count, saturate: true, src: source(), dst: merged }),
    },
  }
}

class Passes {
  /** @param {Layer} layer @param {number} tokens */
  static async create(layer, tokens) {
    const { operands, adapter } = layer
    const { rank, a, b } = adapter
    const put = (/** @type {number} */ count) => operands.put(new Float32Array(count))
    const wide = () => put(tokens * size)
    const inputs = {
      x: await operands.put(uniform(tokens * size, 8)),
      dy: await operands.put(uniform(tokens * size, 9)),
    }
    const outputs = { y: await wide(), z: await wide(), xa: await put(tokens * rank) }
    const gradients = {
      dx: await wide(),
      da: await put(rank * size),
      db: await put(size * rank),
      dmagnitude: await put(size),
    }
    /** @param {number} rows @param {number} cols @param {Float32Array} data @returns {Weight} */
    const f32 = (rows, cols, data) => ({ format: 'f32', rows, cols, data })
    const at = a.map((_, i) => a[(i % rank) * size + Math.floor(i / rank)] ?? 0)
    const factors = {
      a: f32(rank, size, a),
      b: f32(size, rank, b),
      at: f32(size, rank, await operands.put(at)),
      q: await put(tokens * rank),
    }
    return new Passes(layer, tokens, inputs, outputs, gradients, factors)
  }

  /**
   * @param {Layer} layer @param {number} tokens @param {Record<'x' | 'dy', Float32Array>} inputs
   * @param {Record<'y' | 'z' | 'xa', Float32Array>} outputs
   * @param {Record<'dx' | 'da' | 'db' | 'dmagnitude', Float32Array>} gradients
   * @param {{ a: Weight, b: Weight, at: Weight, q: Float32Array }} factors
   */
  constructor(layer, tokens, inputs, outputs, gradients, factors) {
    this.layer = layer
    this.tokens = tokens
    this.inputs = inputs
    this.outputs = outputs
    this.gradients = gradients
    this.factors = factors
  }

  base() {
    const { kernels, next, compute } = this.layer
    const { tokens } = this
    return kernels.run('linear', { weight: next(), tokens, x: this.inputs.x, y: this.outputs.y, compute })
  }

  /** @param {boolean} training @param {Float32Array} [gain] */
  forward(training, gain = this.layer.state.gain) {
    const { kernels, next, adapter, compute } = this.layer
    const { y, z, xa } = this.outputs
    const outputs = { y, xa, ...(training && { z }) }
    const { x } = this.inputs
    return kernels.run('doraForward', {
      weight: next(),
      ...adapter,
      tokens: this.tokens,
      x,
      gain,
      ...outputs,
      compute,
    })
  }

  /** @param {Float32Array} [gain] */
  backward(gain = this.layer.state.gain) {
    const { kernels, next, adapter, state, compute } = this.layer
    const saved = { ...this.inputs, xa: this.outputs.xa, z: this.outputs.z, ...state, gain }
    return kernels.run('doraBackward', {
      weight: next(),
      ...adapter,
      tokens: this.tokens,
      exactNorm: false,
      ...saved,
      ...this.gradients,
      compute,
    })
  }

  /** LoRA's forward pass as products. */
  products() {
    const { kernels, compute } = this.layer
    const { tokens, factors } = this
    const { y, xa } = this.outputs
    return [
      () => this.base(),
      () => kernels.run('linear', { weight: factors.a, tokens, x: this.inputs.x, y: xa, compute }),
      () => kernels.run('linear', { weight: factors.b, tokens, x: xa, residual: y, y, compute }),
    ]
  }

  /** LoRA's backward pass as products. */
  productsBackward() {
    const { kernels, next, compute } = this.layer
    const { tokens, factors, gradients } = this
    const { x, dy } = this.inputs
    const { a, b, at, q } = factors
    const { dx, da, db } = gradients
    const ofB = { weight: b, tokens, x: this.outputs.xa, dy, dx: q, dweight: db, compute }
    return [
      () => kernels.run('linearBackward', ofB),
      () => kernels.run('linearBackward', { weight: a, tokens, x, dy: q, dweight: da, compute }),
      () => kernels.run('linearBackward', { weight: next(), tokens, x, dy, dx, compute }),
      () => kernels.run('linear', { weight: at, tokens, x: q, residual: dx, y: dx, compute }),
    ]
  }
}

/** @param {Passes} passes @returns {AsyncGenerator<Case>} */
async function* forward(passes) {
  const { layer, tokens, outputs } = passes
  const { kernels, state } = layer
  await layer.computeNorm()
  const about = { ...layer.about(tokens), flops: 2 * tokens * size * size }
  const check = () => {
    const value = expected(passes)
    near(outputs.y[5], (state.gain[5] ?? 0) * value, layer.tolerance(1e-3))
  }
  const lora = () =>
    faster(
      { name: 'LoRA', run: () => layer.inOrder(...passes.products()) },
      { name: 'LoRA', run: () => passes.forward(false, layer.ones) },
      true,
    )
  const base = { name: 'base product', run: () => passes.base() }
  const peer = kernels.backend === 'cuda' ? await lora() : base
  yield { name: 'dora cached', ...about, run: () => passes.forward(false), check, peer }
  const recomputed = () =>
    layer.inOrder(
      () => layer.computeNorm(),
      () => passes.forward(false),
    )
  yield { name: 'dora recomputed', ...about, run: recomputed, check, peer }
}

/** @param {Passes} passes @returns {AsyncGenerator<Case>} */
async function* training(passes) {
  const { layer, tokens, outputs } = passes
  const run = () =>
    layer.inOrder(
      () => layer.computeNorm(),
      () => passes.forward(true),
      () => passes.backward(),
    )
  const fused = () =>
    layer.inOrder(
      () => passes.forward(true, layer.ones),
      () => passes.backward(layer.ones),
    )
  const products = () => layer.inOrder(...passes.products(), ...passes.productsBackward())
  await run()
  yield {
    name: 'dora step',
    ...layer.about(tokens),
    flops: 4 * tokens * size * size,
    run,
    check: () => {
      near(outputs.z[5], expected(passes), layer.tolerance(1e-3))
      checkGradients(passes)
    },
    peer: await faster(
      { name: 'LoRA, products', run: products },
      { name: 'LoRA, fused', run: fused },
      layer.kernels.backend === 'cuda',
    ),
  }
}

/** Row `row` of W + scale · B·A. @param {Layer} layer @param {number} row */
function adaptedRow({ next, adapter: { a, b, rank } }, row) {
  const w = decodeWeight(next())
  return Float64Array.from({ length: size }, (_, i) => {
    let value = w[row * size + i] ?? 0
    for (let r = 0; r < rank; ++r) value += scale * (b[row * rank + r] ?? 0) * (a[r * size + i] ?? 0)
    return value
  })
}

/** Element 5 of x[0, :] · (W + scale · B·A)ᵀ. @param {Passes} passes */
const expected = ({ layer, inputs }) =>
  adaptedRow(layer, 5).reduce((sum, value, i) => sum + value * (inputs.x[i] ?? 0), 0)

/** Row 5 of the gradients of B and of the magnitude, the norm being a constant (PEFT's DoRA). @param {Passes} passes */
function checkGradients({ layer, tokens, inputs, outputs, gradients }) {
  const { state, adapter } = layer
  let [ofB, ofMagnitude] = [0, 0]
  for (let t = 0; t < tokens; ++t) {
    const dy = inputs.dy[t * size + 5] ?? 0
    ofB += scale * (state.gain[5] ?? 0) * dy * (outputs.xa[t * adapter.rank] ?? 0)
    ofMagnitude += (dy * (outputs.z[t * size + 5] ?? 0)) / (state.norm[5] ?? 0)
  }
  near(gradients.db[5 * adapter.rank], ofB, layer.tolerance(1e-2))
  near(gradients.dmagnitude[5], ofMagnitude, layer.tolerance(1e-2))
}
