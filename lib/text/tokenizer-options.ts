// tokenizer-options.ts: options and results of tokenizers.

/** Options of {@link TextTokenizer.encode}. */
export interface EncodeOptions {
  /** Adds what the model expects around a text, such as a BOS token. Default true. */
  readonly addSpecialTokens?: boolean
  /**
   * Text that spells a control token, such as `<|im_end|>`, becomes that token. Default false: text of users must not
   * end a turn. True for the output of a chat template.
   */
  readonly parseSpecial?: boolean
  /** Tokens at most, those around the text included; the end of a longer text is left out. */
  readonly maxLength?: number
}

/** Options of {@link TextTokenizer.decode}. */
export interface DecodeOptions {
  /** Leaves control tokens out. Default true. */
  readonly skipSpecialTokens?: boolean
}

/** A control token: its id and the text that chat templates write for it. */
export interface SpecialToken {
  /** Index in the vocabulary and in logits. */
  readonly id: number
  /** As the vocabulary writes it, for instance `</s>`. */
  readonly text: string
}

/** Control tokens by what they are for, as far as a vocabulary has them. */
export interface SpecialTokens {
  /** Begins a text. */
  readonly bos?: SpecialToken
  /** Ends a text. */
  readonly eos?: SpecialToken
  /** Ends a turn of a chat, where that is another token. */
  readonly eot?: SpecialToken
  /** Fills up a batch. */
  readonly pad?: SpecialToken
  /** Stands for what the vocabulary can not write. */
  readonly unk?: SpecialToken
}
