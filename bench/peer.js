// peer.js: ONNX Runtime's CPU MatMul, the peer a Node.js user would pick today.
import os from 'node:os'

/**
 * @typedef {object} Peer
 * @property {string} name
 * @property {(m: number, k: number, n: number) => Promise<(a: Float32Array, b: Float32Array) => Promise<Float32Array>>} matmul
 *   y [m, n] = a [m, k] · b [k, n]
 */

/** The peer, or null when onnxruntime-node is not installed. @returns {Promise<Peer | null>} */
export async function loadPeer() {
  let ort
  try {
    ort = (await import('onnxruntime-node')).default
  } catch {
    return null
  }
  const threads = Number(process.env.DGX_SPARK_THREADS) || os.cpus().length
  return {
    name: 'onnxruntime-node',
    async matmul(m, k, n) {
      const options = {
        intraOpNumThreads: threads,
        interOpNumThreads: 1,
        logSeverityLevel: /** @type {const} */ (3),
      }
      const session = await ort.InferenceSession.create(matmulModel(m, k, n), options)
      return async (a, b) => {
        const feeds = { a: new ort.Tensor('float32', a, [m, k]), b: new ort.Tensor('float32', b, [k, n]) }
        const { y } = await session.run(feeds)
        return /** @type {Float32Array} */ (y?.data)
      }
    },
  }
}

// The few protobuf messages of a one-node ONNX model; field numbers are those of onnx.proto3.

/** @param {number} number @param {number} value */
const varintField = (number, value) => Buffer.from([...varint(number * 8), ...varint(value)])

/** @param {number} number @param {string | Buffer} content */
const field = (number, content) => {
  const bytes = Buffer.from(content)
  return Buffer.concat([Buffer.from([...varint(number * 8 + 2), ...varint(bytes.length)]), bytes])
}

/** @param {number} value @returns {number[]} */
const varint = value => (value < 128 ? [value] : [(value & 127) | 128, ...varint(value >>> 7)])

/** ValueInfoProto of a float tensor. @param {string} name @param {number[]} shape */
function valueInfo(name, shape) {
  const dims = shape.map(size => field(1, varintField(1, size)))
  const tensorType = Buffer.concat([varintField(1, 1), field(2, Buffer.concat(dims))])
  return Buffer.concat([field(1, name), field(2, field(1, tensorType))])
}

/** ModelProto of y = MatMul(a, b). @param {number} m @param {number} k @param {number} n */
function matmulModel(m, k, n) {
  const node = Buffer.concat([field(1, 'a'), field(1, 'b'), field(2, 'y'), field(4, 'MatMul')])
  const graph = Buffer.concat([
    field(1, node),
    field(2, 'matmul'),
    field(11, valueInfo('a', [m, k])),
    field(11, valueInfo('b', [k, n])),
    field(12, valueInfo('y', [m, n])),
  ])
  return Buffer.concat([varintField(1, 8), field(7, graph), field(8, varintField(2, 13))])
}
