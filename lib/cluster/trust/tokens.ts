// tokens.ts: all about tokens, from the files beside this one.
export {
  maxTokenMinutes,
  type TokenClaims,
  type TokenRequest,
  type TokenScope,
  thumbprintOf,
  tokenScopes,
} from './token-claims.js'
export { Grant, TokenGate, type TokenGateOptions } from './token-gate.js'
export { type ListedToken, type MadeToken, TokenIssuer } from './token-issuer.js'
export { TokenVerifier } from './token-verifier.js'
