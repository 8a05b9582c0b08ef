// adapter-set.ts: the adapters of a layer by name, one of them active.
import { expectText } from '../../core/checks.js'
import { SparkError } from '../../core/errors.js'
import type { LayerAdapter } from './layer-adapter.js'

/** Adapters by name, in the order in which they were added. Errors are those of DoRALinear's methods. */
export class AdapterSet {
  readonly #byName = new Map<string, LayerAdapter>()
  #active: LayerAdapter

  constructor(first: LayerAdapter) {
    this.#active = first
    this.#byName.set(first.name, first)
  }

  get active(): LayerAdapter {
    return this.#active
  }

  get names(): readonly string[] {
    return [...this.#byName.keys()]
  }

  /** @throws SparkError ERR_ARGUMENT when there is no such adapter */
  get(name: string): LayerAdapter {
    const adapter = this.#byName.get(name)
    if (adapter) return adapter
    expectText('name', name)
    const known = this.names.join(', ')
    throw new SparkError('ERR_ARGUMENT', `there is no adapter '${name}' on this layer; there are: ${known}`)
  }

  /** @throws SparkError ERR_ARGUMENT when an adapter cannot have that name */
  expectFree(name: string): void {
    expectText('name', name)
    if (this.#byName.has(name)) throw new SparkError('ERR_ARGUMENT', `there is an adapter '${name}' already`)
  }

  add(adapter: LayerAdapter): void {
    this.expectFree(adapter.name)
    this.#byName.set(adapter.name, adapter)
  }

  activate(adapter: LayerAdapter): void {
    this.#active = adapter
  }

  /** @throws SparkError ERR_ARGUMENT when there is no such adapter, or it is the active one */
  remove(name: string): LayerAdapter {
    const adapter = this.get(name)
    if (adapter === this.#active) {
      throw new SparkError('ERR_ARGUMENT', `adapter '${name}' is active: make another one active first`)
    }
    this.#byName.delete(name)
    return adapter
  }

  /** The frozen weight has changed: no gain is true any more. */
  forgetGains(): void {
    for (const adapter of this.#byName.values()) adapter.forgetGain()
  }

  dispose(): void {
    for (const adapter of this.#byName.values()) adapter.dispose()
    this.#byName.clear()
  }
}
