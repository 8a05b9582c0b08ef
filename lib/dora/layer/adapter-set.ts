// adapter-set.ts: the named adapters of a layer, one of them active.
import { expectText } from '../../core/checks.js'
import { SparkError } from '../../core/errors.js'
import type { LayerAdapter } from './layer-adapter.js'

/** Adapters by name, in insertion order. It throws the errors that DoRALinear documents. */
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

  /** @throws SparkError ERR_ARGUMENT for an unknown adapter */
  get(name: string): LayerAdapter {
    const adapter = this.#byName.get(name)
    if (adapter) return adapter
    expectText('name', name)
    const known = this.names.join(', ')
    throw new SparkError('ERR_ARGUMENT', `this layer has no adapter '${name}'; it has: ${known}`)
  }

  /** @throws SparkError ERR_ARGUMENT for a name that is taken or empty */
  expectFree(name: string): void {
    expectText('name', name)
    if (this.#byName.has(name))
      throw new SparkError('ERR_ARGUMENT', `this layer already has an adapter '${name}'`)
  }

  add(adapter: LayerAdapter): void {
    this.expectFree(adapter.name)
    this.#byName.set(adapter.name, adapter)
  }

  activate(adapter: LayerAdapter): void {
    this.#active = adapter
  }

  /** @throws SparkError ERR_ARGUMENT for an unknown adapter, or the active one */
  remove(name: string): LayerAdapter {
    const adapter = this.get(name)
    if (adapter === this.#active) {
      throw new SparkError('ERR_ARGUMENT', `adapter '${name}' is active: activate another one first`)
    }
    this.#byName.delete(name)
    return adapter
  }

  /** Invalidates all gains, after the frozen weight has changed. */
  forgetGains(): void {
    for (const adapter of this.#byName.values()) adapter.forgetGain()
  }

  dispose(): void {
    for (const adapter of this.#byName.values()) adapter.dispose()
    this.#byName.clear()
  }
}
