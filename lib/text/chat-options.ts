// chat-options.ts: messages of conversations, and how they are rendered.

/** A message of a conversation; templates may read more keys than these. */
export interface ChatMessage {
  /** `system`, `user`, `assistant`, `tool`, or another that the template knows. */
  readonly role: string
  /** The text; or parts, such as `{ type: 'text', text }`; null where only tools are called. */
  readonly content?: string | null | readonly object[]
  readonly [key: string]: unknown
}

/** Options of {@link ChatTemplate.render}. */
export interface ChatOptions {
  /** Ends with the beginning of an answer. Default false. */
  readonly addGenerationPrompt?: boolean
  /** Ends inside the last message, for the model to go on with. Default false. */
  readonly continueFinalMessage?: boolean
  /** Descriptions of functions: `{ type: 'function', function: { name, description, parameters } }`. */
  readonly tools?: readonly object[]
  /** Documents to answer from. */
  readonly documents?: readonly object[]
  /** Control tokens by the names of the template, such as `bos_token` and `eos_token`. */
  readonly specialTokens?: Readonly<Record<string, string>>
  /** More variables, such as `enable_thinking` or `reasoning_effort`. */
  readonly variables?: Readonly<Record<string, unknown>>
  /** The time for `strftime_now`. Default: now. */
  readonly now?: Date
}
