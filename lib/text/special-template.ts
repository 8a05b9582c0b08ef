// special-template.ts: the control tokens that a post-processor puts around a text.
import { type Component, tokenizerError } from './tokenizer-json.js'

/** Ids before and behind a text. */
export interface SpecialTemplate {
  readonly before: readonly number[]
  readonly behind: readonly number[]
}

const none: SpecialTemplate = { before: [], behind: [] }

type Item = { readonly SpecialToken?: { readonly id: string }; readonly Sequence?: object }

function fromItems({ single, special_tokens: tokens }: Component): SpecialTemplate {
  const known = (tokens ?? {}) as Record<string, { readonly ids: readonly number[] }>
  const [before, behind]: [number[], number[]] = [[], []]
  let target = before
  for (const { SpecialToken: token } of (single ?? []) as readonly Item[]) {
    if (!token) target = behind
    else if (Array.isArray(known[token.id]?.ids)) target.push(...known[token.id]!.ids)
    else throw tokenizerError('ERR_FORMAT', `post_processor does not say which ids ${token.id} has`)
  }
  return { before, behind }
}

/**
 * The ids that a post-processor adds.
 * @throws SparkError ERR_FORMAT, ERR_UNSUPPORTED
 */
export function specialTemplate(processor: Component | null): SpecialTemplate {
  switch (processor?.type) {
    case undefined:
    case 'ByteLevel':
      return none
    case 'TemplateProcessing':
      return fromItems(processor!)
    case 'BertProcessing':
    case 'RobertaProcessing': {
      const { cls, sep } = processor as unknown as Record<'cls' | 'sep', [string, number]>
      return { before: [cls[1]], behind: [sep[1]] }
    }
    case 'Sequence':
      return ((processor!.processors ?? []) as Component[])
        .map(specialTemplate)
        .reduce((a, b) => ({ before: [...b.before, ...a.before], behind: [...a.behind, ...b.behind] }), none)
    default:
      throw tokenizerError('ERR_UNSUPPORTED', `post_processor ${processor?.type}`)
  }
}
