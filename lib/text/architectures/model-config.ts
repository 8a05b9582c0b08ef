// model-config.ts: what a config.json says of a language model, a decoder or an encoder.
import type { DecoderConfig } from './config.js'
import { readDecoderConfig } from './decoders.js'
import { type EncoderConfig, encoderTypes, readEncoderConfig } from './encoder-config.js'

/** A language model: one that continues texts, or one that makes vectors of them. */
export type ModelConfig =
  | { readonly kind: 'decoder'; readonly decoder: DecoderConfig }
  | { readonly kind: 'encoder'; readonly encoder: EncoderConfig }

/**
 * What a config.json says of a language model.
 * @throws SparkError ERR_UNSUPPORTED for a model that is not known, naming it; ERR_FORMAT for values that are missing or wrong
 */
export function readModelConfig(json: unknown, where: string): ModelConfig {
  const type = (json as { model_type?: unknown } | null)?.model_type
  return encoderTypes.includes(type as string)
    ? { kind: 'encoder', encoder: readEncoderConfig(json, where) }
    : { kind: 'decoder', decoder: readDecoderConfig(json, where) }
}
