// mixed.ts: a batch whose rows go through different adapters of a layer.
import { argumentError } from '../../core/checks.js'
import type { DType } from '../../core/dtype.js'
import { SparkError } from '../../core/errors.js'
import type { Tensor } from '../../memory/tensor.js'
import type { Frozen, LayerAdapter } from './layer-adapter.js'
import { expectInput, output, ownFloats } from './passes.js'
import type { Work } from './prepared-calls.js'

/**
 * The forward pass of row t through the adapter names[t], or through none where that is null; `find` gives an adapter by
 * its name.
 */
export function mixedWork<D extends DType>(
  frozen: Frozen,
  bias: Float32Array | undefined,
  x: Tensor<D>,
  names: readonly (string | null)[],
  find: (name: string) => LayerAdapter,
): Work<Tensor<D>> {
  const { weight } = frozen
  expectInput('x', x, weight.cols)
  const tokens = x.size / weight.cols
  if (!Array.isArray(names)) throw argumentError('options.adapters', 'an array of names or null', names)
  if (names.length !== tokens) {
    throw new SparkError(
      'ERR_SHAPE',
      `options.adapters has ${names.length} entries, but x has ${tokens} rows`,
    )
  }
  const used = [...new Set(names)].filter(name => name !== null)
  const place = new Map(used.map((name, i) => [name, i]))
  const index = Int32Array.from(names, name => (name === null ? -1 : place.get(name)!))
  const taken = used.map(find).map(adapter => ({ adapter, ...adapter.takeSnapshot(frozen) }))
  const adapters = taken.map(({ snapshot }) => snapshot)
  const y = new Float32Array(tokens * weight.rows)
  return {
    steps: [
      ...taken.flatMap(({ steps }) => steps),
      ['doraMixed', { weight, tokens, x: ownFloats(x), adapters, index, bias, y }],
    ],
    finish() {
      for (const { adapter, snapshot } of taken) adapter.keep(snapshot)
      return output(x, weight.rows, y)
    },
  }
}
