// pull-options.ts: what a pull is asked, and what it gives.
import type { ModelFormat } from './select-files.js'

/** Options of {@link pullModel}. */
export interface PullOptions {
  /** Branch, tag or commit of a repository of the Hugging Face hub. Default: that of the name, or main. */
  readonly revision?: string
  /** Token for the server that the name is of. Default: that of the environment. */
  readonly token?: string
  /** Only what is on this disk, without a request. Default: false; for the Hugging Face hub HF_HUB_OFFLINE. */
  readonly offline?: boolean
  /**
   * Asks the registry for a newer version of a model of Ollama that is on this disk. Default: false. The Hugging Face hub is always
   * asked; the file of an address never.
   */
  readonly update?: boolean
  /** Only plans: nothing is downloaded or written. Default: false. */
  readonly dryRun?: boolean
  /** Ends the pull; what has arrived stays for the next one. */
  readonly signal?: AbortSignal
  /** Is told what is needed, before anything is downloaded. */
  readonly onPlan?: (plan: PullPlan) => void
  /** Is told about progress. */
  readonly onProgress?: (progress: PullProgress) => void
}

/** The files that a model needs. */
export interface PullPlan {
  /** Those that are there already included. */
  readonly files: readonly PlannedFile[]
}

/** A file that a model needs. */
export interface PlannedFile {
  /** Path in the repository, or what the file is of a model. */
  readonly name: string
  /** Bytes of it; null where the server does not say before it is downloaded. */
  readonly bytes: number | null
  /** Whether it is on this disk. */
  readonly isThere: boolean
}

/** How far a pull is. */
export interface PullProgress {
  /** Bytes of all files that are there. */
  readonly bytes: number
  /** Bytes of all files; null where a server does not say. */
  readonly total: number | null
  /** The file that has grown. */
  readonly file: string
}

/** A file of a model on this disk. */
export interface PulledFile {
  /** Path in the repository, or what the file is of a model. */
  readonly name: string
  /** Where it is. */
  readonly path: string
  /** Its size. */
  readonly bytes: number
}

/** A model on this disk. */
export interface PulledModel {
  /** What a loader opens: a folder, the GGUF file (of a split one the first part), or the ONNX file. */
  readonly path: string
  /** What kind of model it is. */
  readonly format: ModelFormat
  /** All of its files. */
  readonly files: readonly PulledFile[]
  /** The commit of a repository of the Hugging Face hub. */
  readonly commit?: string
  /** Bytes that this call has downloaded. */
  readonly downloadedBytes: number
  /** Whether no server was asked, or none answered. */
  readonly isOffline: boolean
}
