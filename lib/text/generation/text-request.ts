// text-request.ts: a request of tokens whose answer is a text: sampling, decoding, stop texts.
import { expectBoolean, expectInteger, expectKnownOptions, expectSignal } from '../../core/checks.js'
import type { GenerationDefaults } from '../files/generation-defaults.js'
import { type SampledToken, Sampler } from '../sampler.js'
import { samplingNames } from '../sampling-options.js'
import { StopDetector } from '../stop-detector.js'
import type { FinishReason, GeneratedToken, GenerationOptions } from '../text-options.js'
import type { TextTokenizer } from '../text-tokenizer.js'
import type { GenerationEnd } from './generation.js'
import type { Sequence, TokenRequest } from './token-request.js'

/** Names of the options of {@link GenerationOptions}. */
const generationOptions: readonly string[] = [
  ...samplingNames,
  'maxTokens',
  'stop',
  'stopIds',
  'ignoreEnd',
  'skipSpecialTokens',
  'chat',
  'signal',
] satisfies readonly (keyof GenerationOptions)[]

/**
 * Refuses options that are unknown or wrong.
 * @throws SparkError ERR_ARGUMENT that names the option
 */
export function expectGenerationOptions(options: GenerationOptions): void {
  expectKnownOptions('options', options, generationOptions)
  const { maxTokens, stopIds = [], ignoreEnd = false, skipSpecialTokens = true, signal } = options
  if (maxTokens !== undefined) expectInteger('options.maxTokens', maxTokens, 1)
  for (const [i, id] of stopIds.entries()) expectInteger(`options.stopIds[${i}]`, id, 0)
  expectBoolean('options.ignoreEnd', ignoreEnd)
  expectBoolean('options.skipSpecialTokens', skipSpecialTokens)
  expectSignal('options.signal', signal)
}

/** A text while it is generated. */
export class TextRequest {
  readonly #sampler: Sampler
  readonly #decoder: ReturnType<TextTokenizer['streamDecoder']>
  readonly #stops: StopDetector
  readonly #endIds: ReadonlySet<number>
  readonly #push: (token: GeneratedToken) => void
  #finish: FinishReason = 'length'
  #stop: string | undefined

  /**
   * @param ids - of the prompt
   * @param push - is told of each token
   * @throws SparkError ERR_ARGUMENT
   */
  constructor(
    tokenizer: TextTokenizer,
    { endIds, sampling }: GenerationDefaults,
    ids: readonly number[],
    options: GenerationOptions,
    push: (token: GeneratedToken) => void,
  ) {
    const { stop = [], stopIds = [], ignoreEnd = false, skipSpecialTokens = true } = options
    const given = samplingNames.flatMap(name => (options[name] === undefined ? [] : [[name, options[name]]]))
    this.#sampler = new Sampler({ ...greedy(sampling), ...Object.fromEntries(given), prompt: ids })
    this.#decoder = tokenizer.streamDecoder({ skipSpecialTokens })
    this.#stops = new StopDetector(typeof stop === 'string' ? [stop] : stop)
    this.#endIds = new Set([...stopIds, ...(ignoreEnd ? [] : endIds)])
    this.#push = push
  }

  /** What the scheduler works on. */
  request(ids: readonly number[], maxTokens: number, signal: AbortSignal): TokenRequest {
    const next: TokenRequest['next'] = (_rows, _width, _first, token) => this.#next(token!)
    return { ids, maxTokens, output: 'logits', rows: 'last', signal, sampler: this.#sampler, next }
  }

  /** What is known at the end. */
  end({ request, reused }: Sequence): GenerationEnd {
    const held = this.#stops.push(this.#decoder.flush())
    const rest = this.#stops.flush()
    const stop = this.#stop ?? held.stop ?? rest.stop
    return {
      finishReason: stop === undefined ? this.#finish : 'stop',
      rest: held.text + rest.text,
      stop,
      promptTokens: request.ids.length,
      cachedTokens: reused,
    }
  }

  #next({ id, logprob, top }: SampledToken): number | undefined {
    this.#sampler.accept(id)
    const probabilities = { ...(logprob === undefined ? {} : { logprob }), ...(top ? { top } : {}) }
    if (this.#endIds.has(id)) {
      this.#finish = 'end'
      this.#push({ id, text: '', ...probabilities })
      return undefined
    }
    const { text, stop } = this.#stops.push(this.#decoder.push(id))
    this.#push({ id, text, ...probabilities })
    this.#stop = stop
    return stop === undefined ? id : undefined
  }
}

/** The most likely token where files of a model do not say how to choose. */
const greedy = (sampling: GenerationDefaults['sampling']): GenerationDefaults['sampling'] =>
  Object.keys(sampling).length > 0 ? sampling : { temperature: 0 }
