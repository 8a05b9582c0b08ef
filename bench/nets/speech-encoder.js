// speech-encoder.js: an encoder of speech (Whisper): two convolutions over time, positions, blocks of a transformer.
import { int64, Layers } from './layers.js'

/**
 * `mel` [n, bands, t] to `features` [n, t / 2, width].
 * @param {number} seed @param {{ bands: number, width: number, heads: number, layers: number, positions: number }} sizes
 */
export function speechEncoder(seed, { bands, width, heads, layers: blocks, positions }) {
  const layers = new Layers('speech-encoder', seed)
  const mel = layers.input('mel', ['n', bands, 't'])
  const first = layers.add('Gelu', [layers.conv(mel, bands, width, { kernel: [3] })])
  const second = layers.conv(first, width, width, { kernel: [3], strides: [2] })
  const rows = layers.add('Transpose', [layers.add('Gelu', [second])], { perm: [0, 2, 1] })
  const length = layers.shape([layers.size(rows, 1)])
  const table = layers.weight([positions, width], width)
  let x = layers.add('Add', [rows, layers.add('Slice', [table, int64([0]), length, int64([0])])])
  for (let block = 0; block < blocks; block++) x = layers.block(x, width, heads).y
  return layers.build({ features: layers.norm(x, width) })
}
