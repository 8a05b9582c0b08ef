// decoder.js: a language model that takes one token and the keys and values of those before it.
import { Layers } from './layers.js'

/**
 * `id` [n, 1] and `past.N.key`, `past.N.value` [n, heads, past, depth] to `logits` [n, 1, vocabulary] and
 * `present.N.key`, `present.N.value`.
 * @param {number} seed @param {{ width: number, heads: number, layers: number, positions: number, vocabulary: number }} sizes
 */
export function decoder(seed, { width, heads, layers: blocks, positions, vocabulary }) {
  const layers = new Layers('decoder', seed)
  const id = layers.input('id', ['n', 1], 'i64')
  const shape = ['n', heads, 'past', width / heads]
  const pasts = Array.from({ length: blocks }, (_, block) => ({
    key: layers.input(`past.${block}.key`, shape),
    value: layers.input(`past.${block}.value`, shape),
  }))
  const embedding = layers.add('Gather', [layers.weight([vocabulary, width], width), id])
  const position = layers.shape([layers.size(pasts[0]?.key ?? '', 2)])
  let x = layers.add('Add', [
    embedding,
    layers.add('Gather', [layers.weight([positions, width], width), position]),
  ])
  /** @type {Record<string, string>} */
  const presents = {}
  for (const [block, past] of pasts.entries()) {
    const { y, key, value } = layers.block(x, width, heads, past)
    x = y
    presents[`present.${block}.key`] = key
    presents[`present.${block}.value`] = value
  }
  const logits = layers.linear(layers.norm(x, width), width, vocabulary)
  return layers.build({ logits, ...presents })
}
