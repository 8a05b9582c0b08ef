// adapted-layer.ts: what a layer says of its active adapter.
import type { LayerAdapter } from './layer-adapter.js'

/** A layer with adapters, one of them active. */
export abstract class AdaptedLayer {
  /** @internal */
  protected abstract get adapter(): LayerAdapter

  /** Name of the active adapter: the one that passes go through, and that the settings and parameters below are of. */
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

  /** Factor of B·A, an f32. */
  get scale(): number {
    return this.adapter.scale
  }

  /** Probability of dropout in training. */
  get dropout(): number {
    return this.adapter.dropout
  }
}
