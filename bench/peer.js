// peer.js: operators of ONNX Runtime on the CPU, the peer a Node.js user would pick today.
import os from 'node:os'
import { operatorModel } from './onnx-model.js'

/** @import { Operator } from './onnx-model.js' */

/**
 * @typedef {object} Peer
 * @property {string} name
 * @property {(m: number, k: number, n: number) => Promise<(a: Float32Array, b: Float32Array) => Promise<Float32Array>>} matmul
 *   y [m, n] = a [m, k] · b [k, n]
 * @property {(operator: Operator) => Promise<(...inputs: Float32Array[]) => Promise<Float32Array>>} operator
 *   its first output, of the inputs that are not constants
 * @property {(file: string, inputs: ModelInput[]) => Promise<() => Promise<Record<string, Float32Array>>>} model
 *   the outputs of a whole model
 */

/** @typedef {{ name: string, shape: number[], data: Float32Array | Uint8Array }} ModelInput */

/** The peer, or null when onnxruntime-node is not installed. @returns {Promise<Peer | null>} */
export async function loadPeer() {
  let ort
  try {
    ort = (await import('onnxruntime-node')).default
  } catch {
    return null
  }
  const threads = Number(process.env.DGX_SPARK_THREADS) || os.cpus().length
  const options = {
    intraOpNumThreads: threads,
    interOpNumThreads: 1,
    logSeverityLevel: /** @type {const} */ (3),
  }
  /** @type {Peer['model']} */
  const model = async (file, inputs) => {
    const session = await ort.InferenceSession.create(file, options)
    const feeds = Object.fromEntries(
      inputs.map(({ name, shape, data }) => {
        const type = data instanceof Uint8Array ? 'uint8' : 'float32'
        return [name, new ort.Tensor(type, /** @type {Float32Array} */ (data), shape)]
      }),
    )
    return async () => {
      const outputs = Object.entries(await session.run(feeds))
      return Object.fromEntries(outputs.map(([name, { data }]) => [name, /** @type {Float32Array} */ (data)]))
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
