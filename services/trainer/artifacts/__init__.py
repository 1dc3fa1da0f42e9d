"""Folders that training makes: checkpoints, merged models, exports, converted base models. Safetensors and JSON only."""
