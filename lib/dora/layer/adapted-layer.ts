// adapted-layer.ts: base class of layers with adapters: the settings of the active one.
import type { LayerAdapter } from './layer-adapter.js'

/**
 * A layer with adapters, one of them active.
 * @example
 * const layer = await DoRALinear.fromLinear({ weight: Tensor.zeros([512, 784]) }, { rank: 8 })
 * console.log(layer.activeAdapter, layer.rank, layer.scale, layer.trainableCount)
 * layer.dispose()
 */
export abstract class AdaptedLayer {
  /** @internal */
  protected abstract get adapter(): LayerAdapter

  /** Name of the active adapter: forward passes use it, and the settings and parameters below are its own. */
  get activeAdapter(): string {
    return this.adapter.name
  }

  /** Rows of A. */
  get rank(): number {
    return this.adapter.rank
  }

  /** Numerator of {@link AdaptedLayer.scale}. */
  get alpha(): number {
    return this.adapter.alpha
  }

  /** Whether the scale is alpha / √rank. */
  get rslora(): boolean {
    return this.adapter.rslora
  }

  /** Factor of B·A, rounded to f32. */
  get scale(): number {
    return this.adapter.scale
  }

  /** Number of trainable elements: rank · (in + out) + out. */
  get trainableCount(): number {
    return this.adapter.trainableCount
  }

  /** Dropout probability in training. */
  get dropout(): number {
    return this.adapter.dropout
  }
}
