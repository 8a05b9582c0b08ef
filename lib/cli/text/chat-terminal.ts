// chat-terminal.ts: a conversation on a terminal: lines of the user, answers as they come, commands that begin with a slash.
import { createInterface, type Interface } from 'node:readline/promises'
import { didYouMean } from '../../core/did-you-mean.js'
import { SparkError } from '../../core/errors.js'
import { printableLines } from '../../core/printable.js'
import { readCached, writeCached } from '../../io/user-cache.js'
import type { Generation } from '../../text/generation/generation.js'
import { samplingNames } from '../../text/sampling-options.js'
import type { TextModel } from '../../text/text-model.js'
import type { GenerationOptions } from '../../text/text-options.js'
import type { TextSession } from '../../text/text-session.js'
import { print, printError, styled } from '../output.js'

/** What the lines of earlier conversations are kept in. */
const historyFile = 'chat-history.json'
const historyLines = 500

/** Settings that `/set` knows: those that are numbers. */
const settings = [
  'maxTokens',
  ...samplingNames.filter(name => name !== 'logitBias' && name !== 'logprobs'),
] as const

interface TerminalCommand {
  readonly usage: string
  readonly help: string
  run(text: string): void | Promise<void>
}

/** Talks on stdin and stdout until the user ends it. */
export class ChatTerminal {
  readonly #model: TextModel
  readonly #session: TextSession
  readonly #settings: { -readonly [K in keyof GenerationOptions]: GenerationOptions[K] } = {}
  readonly #commands: Readonly<Record<string, TerminalCommand>>
  #readline: Interface | undefined
  /** Ends the answer that is being generated. */
  #answer: AbortController | undefined
  #isOver = false

  constructor(model: TextModel, session: TextSession) {
    this.#model = model
    this.#session = session
    this.#commands = this.#makeCommands()
  }

  /** Asks and answers. */
  async run(): Promise<void> {
    const { architecture, backend, contextLength } = this.#model
    print(
      styled(
        'dim',
        `${architecture} on ${backend.name}, ${contextLength} tokens of context; /help shows commands`,
      ),
    )
    const kept = await readCached(historyFile)
    const history = Array.isArray(kept) ? kept.filter(line => typeof line === 'string') : []
    const terminal = createInterface({
      input: process.stdin,
      output: process.stdout,
      historySize: historyLines,
      history,
    })
    this.#readline = terminal
    terminal.on('SIGINT', () => this.#interrupt())
    terminal.on('close', () => {
      this.#isOver = true
      this.#answer?.abort()
    })
    terminal.on('history', lines => history.splice(0, history.length, ...lines))
    while (!this.#isOver) {
      const line = await terminal.question('> ').catch(() => undefined)
      if (line === undefined) break
      await this.#handle(line)
    }
    terminal.close()
    await writeCached(historyFile, history.slice(0, historyLines))
  }

  /** Ctrl-C ends the answer; where there is none, the conversation. */
  #interrupt(): void {
    if (this.#answer) this.#answer.abort()
    else this.#readline?.close()
  }

  async #handle(line: string): Promise<void> {
    try {
      if (line.startsWith('/')) await this.#command(line)
      else if (line.trim() !== '')
        await this.#show(signal => this.#session.send(line, { ...this.#settings, signal }))
    } catch (error) {
      if (!(error instanceof SparkError)) throw error
      printError(`${error.message} [${error.code}]`)
    }
  }

  async #command(line: string): Promise<void> {
    const [, name = '', text = ''] = /^\/(\S*)\s*(.*)$/s.exec(line) ?? []
    const command = Object.hasOwn(this.#commands, name) ? this.#commands[name] : undefined
    if (!command) {
      const known = Object.keys(this.#commands)
      throw new SparkError(
        'ERR_ARGUMENT',
        `there is no command /${name}${didYouMean(name, known)}; /help shows all`,
      )
    }
    await command.run(text)
  }

  async #show(start: (signal: AbortSignal) => Generation): Promise<void> {
    const answer = new AbortController()
    this.#answer = answer
    const began = performance.now()
    try {
      const generation = start(answer.signal)
      for await (const piece of generation) process.stdout.write(printableLines(piece))
      const { ids, promptTokens, cachedTokens } = await generation.result()
      const seconds = (performance.now() - began) / 1000
      const speed = `${ids.length} tokens, ${(ids.length / seconds).toFixed(1)} a second`
      print()
      print(
        styled('dim', `${speed}; ${cachedTokens} of ${promptTokens} tokens of the prompt were there already`),
      )
    } catch (error) {
      print()
      if (!answer.signal.aborted) throw error
      print(styled('dim', 'interrupted'))
    } finally {
      this.#answer = undefined
    }
  }

  #makeCommands(): Readonly<Record<string, TerminalCommand>> {
    const session = this.#session
    return {
      help: { usage: '/help', help: 'show commands', run: () => this.#help() },
      clear: { usage: '/clear', help: 'forget the conversation', run: () => session.clear() },
      undo: {
        usage: '/undo',
        help: 'take the last message and its answer back',
        run: () => print(session.undo() ? 'taken back' : 'there is nothing to take back'),
      },
      retry: {
        usage: '/retry',
        help: 'answer the last message again',
        run: () => this.#show(signal => session.retry({ ...this.#settings, signal })),
      },
      history: { usage: '/history', help: 'show all messages', run: () => this.#history() },
      set: {
        usage: '/set [name value]',
        help: 'show or change how tokens are chosen',
        run: text => this.#set(text),
      },
      save: {
        usage: '/save <file>',
        help: 'write the messages to a file, with .safetensors also their keys and values',
        run: async file => {
          await session.save(file)
          print(`wrote ${file}`)
        },
      },
      load: {
        usage: '/load <file>',
        help: 'go on with the messages of a file',
        run: async file => {
          await session.restore(file)
          print(`${session.messages.length} messages`)
        },
      },
      exit: { usage: '/exit', help: 'end the conversation', run: () => this.#readline?.close() },
    }
  }

  #help(): void {
    for (const { usage, help } of Object.values(this.#commands)) print(`  ${usage.padEnd(20)}${help}`)
    print('Ctrl-C ends an answer, and without one the conversation.')
  }

  #history(): void {
    for (const { role, content } of this.#session.messages) {
      const text = typeof content === 'string' ? content : JSON.stringify(content)
      print(styled('bold', role))
      process.stdout.write(`${printableLines(text)}\n`)
    }
  }

  #set(text: string): void {
    if (text === '') {
      for (const name of settings) print(`  ${name.padEnd(20)}${this.#settings[name] ?? 'default'}`)
      return
    }
    const [name = '', value = ''] = text.split(/\s+/)
    const known = settings.find(each => each === name)
    if (!known) {
      const list = settings.join(', ')
      throw new SparkError(
        'ERR_ARGUMENT',
        `there is no setting '${name}'${didYouMean(name, settings)}; these are: ${list}`,
      )
    }
    const number = Number(value)
    if (value === '' || Number.isNaN(number))
      throw new SparkError('ERR_ARGUMENT', `/set ${name} needs a number, such as /set temperature 0.7`)
    this.#settings[known] = number
  }
}
