// peer.js: operators of ONNX Runtime on the CPU, the peer a Node.js user would pick today.
import { decode } from 'dgx-spark'
import { threadsOf } from './harness.js'
import { operatorModel } from './onnx-model.js'

/** @import { ElementType, Tensor } from 'dgx-spark' */
/** @import { Operator } from './onnx-model.js' */

/**
 * @typedef {object} Peer
 * @property {string} name
 * @property {(m: number, k: number, n: number) => Promise<(a: Float32Array, b: Float32Array) => Promise<Float32Array>>} matmul
 *   y [m, n] = a [m, k] · b [k, n]
 * @property {(operator: Operator) => Promise<(...inputs: Float32Array[]) => Promise<Float32Array>>} operator
 *   its first output, of the inputs that are not constants
 * @property {(file: string, feeds: Record<string, Tensor<ElementType>>) => Promise<PeerModel>} model
 */

/**
 * @typedef {object} PeerModel a whole model
 * @property {() => Promise<unknown>} run
 * @property {() => Promise<Record<string, Float32Array>>} outputs of a run, as f32
 * @property {() => Promise<void>} dispose
 */

/** Names of the element types of models. @type {Partial<Record<ElementType, string>>} */
const types = { f32: 'float32', f16: 'float16', i64: 'int64', u8: 'uint8' }

/** Elements of f32 or f16. @param {unknown} data */
function asFloat32(data) {
  if (data instanceof Float32Array) return data
  const { buffer, byteOffset, length } = /** @type {Uint16Array} */ (data)
  return decode(new Uint16Array(buffer, byteOffset, length), 'f16')
}

/** The peer, or null when onnxruntime-node is not installed. @returns {Promise<Peer | null>} */
export async function loadPeer() {
  let ort
  try {
    ort = (await import('onnxruntime-node')).default
  } catch {
    return null
  }
  const options = {
    intraOpNumThreads: threadsOf(),
    interOpNumThreads: 1,
    logSeverityLevel: /** @type {const} */ (3),
  }
  /** @type {Peer['model']} */
  const model = async (file, feeds) => {
    const session = await ort.InferenceSession.create(file, options)
    const tensors = Object.fromEntries(
      Object.entries(feeds).map(([name, { dtype, shape, data }]) => {
        const type = /** @type {'float32'} */ (types[dtype])
        return [name, new ort.Tensor(type, /** @type {Float32Array} */ (data), [...shape])]
      }),
    )
    return {
      run: () => session.run(tensors),
      outputs: async () => {
        const outputs = Object.entries(await session.run(tensors))
        return Object.fromEntries(outputs.map(([name, { data }]) => [name, asFloat32(data)]))
      },
      dispose: () => session.release(),
    }
  }
  /** @type {Peer['operator']} */
  const operator = async description => {
    const session = await ort.InferenceSession.create(operatorModel(description), options)
    const shapes = Object.entries(description.inputs)
    return async (...inputs) => {
      const feeds = Object.fromEntries(
        shapes.map(([name, shape], i) => [
          name,
          new ort.Tensor('float32', inputs[i] ?? new Float32Array(), shape),
        ]),
      )
      const { y } = await session.run(feeds)
      return /** @type {Float32Array} */ (y?.data)
    }
  }
  return {
    name: 'onnxruntime-node',
    operator,
    model,
    matmul: (m, k, n) =>
      operator({ type: 'MatMul', inputs: { a: [m, k], b: [k, n] }, outputs: { y: [m, n] } }),
  }
}
