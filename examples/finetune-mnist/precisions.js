// precisions.js: accuracy of a model whose weights are stored in fewer bits.
import { Constant, Model, Tensor } from 'dgx-spark'
import { decodeWeight, storeWeight, weightBytes } from 'dgx-spark/kernels'
import { accuracy } from './data.js'

/** @import { EngineOptions } from 'dgx-spark' */
/** @import { Digits } from './data.js' */

/** Elements that share a scale in NVFP4. */
const block = 16

/**
 * Accuracy and bytes of the weights for each format; biases and the first kernels, whose rows fill no block, stay f32.
 * @param {Model['graph']} graph of a model in f32
 * @param {Digits} digits
 * @param {EngineOptions} engine
 */
export async function precisionsOf(graph, digits, engine) {
  const modes = []
  for (const precision of /** @type {const} */ (['fp32', 'fp16', 'fp8', 'nvfp4'])) {
    const initializers = new Map(graph.initializers)
    let bytes = 0
    for (const [name, constant] of graph.initializers) {
      const { shape } = constant
      bytes += constant.byteLength
      const [rows = 1] = shape
      const cols = constant.count / rows
      if (cols % block !== 0) continue
      const values = Tensor.from(/** @type {Float32Array} */ (constant.data), { shape: [rows, cols] })
      const stored = storeWeight(values, precision)
      bytes += weightBytes(stored) - constant.byteLength
      initializers.set(name, Constant.from('f32', shape, decodeWeight(stored)))
    }
    const model = await Model.fromGraph({ ...graph, initializers }, engine)
    modes.push({ precision, accuracy: await accuracy(model, digits), bytes })
    model.dispose()
  }
  return modes
}
