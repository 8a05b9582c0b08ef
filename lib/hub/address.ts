// address.ts: addresses below others.

/** An address below another one, whose query stays. */
export function below(base: URL, ...parts: readonly string[]): URL {
  const url = new URL(base)
  const folder = url.pathname.replace(/\/+$/, '')
  url.pathname = [folder, ...parts.map(encodeURIComponent)].join('/')
  return url
}
