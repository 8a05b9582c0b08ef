// mixed-batch.ts: forward pass of a batch whose rows use different adapters.
import { argumentError } from '../../core/checks.js'
import type { DType } from '../../core/dtype.js'
import { SparkError } from '../../core/errors.js'
import type { Tensor } from '../../memory/tensor.js'
import { expectInput, output, ownFloats } from './forward-backward.js'
import type { KernelCalls } from './kernel-calls.js'
import type { FrozenWeight, LayerAdapter } from './layer-adapter.js'

/**
 * The forward pass with adapter names[t] for row t, or without an adapter where that is null.
 * @param find - returns the adapter of a name, or throws
 */
export function mixedForwardCalls<D extends DType>(
  frozen: FrozenWeight,
  bias: Float32Array | undefined,
  x: Tensor<D>,
  names: readonly (string | null)[],
  find: (name: string) => LayerAdapter,
): KernelCalls<Tensor<D>> {
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
  const indices = new Map(used.map((name, i) => [name, i]))
  const index = Int32Array.from(names, name => (name === null ? -1 : indices.get(name)!))
  const taken = used.map(find).map(adapter => ({ adapter, ...adapter.takeSnapshot(frozen) }))
  const adapters = taken.map(({ snapshot }) => snapshot)
  const y = new Float32Array(tokens * weight.rows)
  return {
    calls: [
      ...taken.flatMap(({ calls }) => calls),
      ['doraMixed', { weight, tokens, x: ownFloats(x), adapters, index, bias, y }],
    ],
    result() {
      for (const { adapter, snapshot } of taken) adapter.keep(snapshot)
      return output(x, weight.rows, y)
    },
  }
}
