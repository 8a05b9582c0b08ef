// printable.ts: escaping of text from files for terminals. Model, tensor and file names can hold sequences that clear the
// screen, rename the window or reverse what is read.

/** Controls (C0, DEL, C1), line and paragraph separators, and bidirectional formatting characters. */
const unsafe = /[\p{Cc}\p{Zl}\p{Zp}\p{Bidi_Control}]/gu

/** A text without control characters: each becomes its code, such as \x1b or \u{202e}. */
export function printable(text: string): string {
  return text.replace(unsafe, character => {
    const code = character.codePointAt(0)!.toString(16)
    return code.length <= 2 ? `\\x${code.padStart(2, '0')}` : `\\u{${code}}`
  })
}

/** As {@link printable}, for a text of several lines of ours. */
export function printableLines(text: string): string {
  return text.split('\n').map(printable).join('\n')
}

/** Equivalent JSON whose only control characters are line feeds. */
export function printableJson(json: string): string {
  const escaped = (character: string): string =>
    character === '\n' ? character : `\\u${character.charCodeAt(0).toString(16).padStart(4, '0')}`
  return json.replace(unsafe, escaped)
}

/** An error whose message and stack are printable: `error` itself, or a copy. */
export function printableError(error: unknown): unknown {
  if (!(error instanceof Error) || printableLines(error.message) === error.message) return error
  const copy = Object.create(Object.getPrototypeOf(error), Object.getOwnPropertyDescriptors(error))
  const stack = printableLines(error.stack ?? '')
  return Object.defineProperties(copy, {
    message: { value: printable(error.message), writable: true, configurable: true },
    stack: { value: stack, writable: true, configurable: true },
  })
}
