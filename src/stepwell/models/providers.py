"""The built-in providers. Each takes a few lines; so will yours."""

from stepwell.models.provider import Auth, Provider
from stepwell.models.wire import AnthropicMessages, ChatCompletions, Gemini, OpenAIResponses
from stepwell.models.wire.messages import VERSION

_OPENAI_CHAT = ChatCompletions(
    max_tokens_field="max_completion_tokens", has_developer_role=True, formats_with_tools=True
)

_KNOWN = (
    Provider(
        name="openai",
        wire=OpenAIResponses(),
        base_url="https://api.openai.com/v1",
        base_url_env="OPENAI_BASE_URL",
        key_env="OPENAI_API_KEY",
        default_model="gpt-5.4-mini",
        prices="openai",
    ),
    Provider(
        name="openai-chat",
        wire=_OPENAI_CHAT,
        base_url="https://api.openai.com/v1",
        base_url_env="OPENAI_BASE_URL",
        key_env="OPENAI_API_KEY",
        default_model="gpt-5.4-mini",
        prices="openai",
    ),
    Provider(
        # The address ends in /openai/v1, or in /openai/deployments/<name>?api-version=<date>.
        name="azure",
        wire=_OPENAI_CHAT,
        base_url="",
        base_url_env="AZURE_OPENAI_BASE_URL",
        key_env="AZURE_OPENAI_API_KEY",
        auth=Auth(header="api-key", prefix=""),
        prices="azure",
    ),
    Provider(
        name="anthropic",
        wire=AnthropicMessages(),
        base_url="https://api.anthropic.com",
        base_url_env="ANTHROPIC_BASE_URL",
        key_env="ANTHROPIC_API_KEY",
        auth=Auth(header="x-api-key", prefix=""),
        headers={"anthropic-version": VERSION},
        default_model="claude-sonnet-4-6",
        prices="anthropic",
    ),
    Provider(
        name="gemini",
        wire=Gemini(),
        base_url="https://generativelanguage.googleapis.com",
        base_url_env="GOOGLE_GEMINI_BASE_URL",
        key_env="GEMINI_API_KEY",
        auth=Auth(header="x-goog-api-key", prefix=""),
        default_model="gemini-3.5-flash",
        prices="google",
    ),
    Provider(
        name="ollama",
        base_url="http://localhost:11434/v1",
        base_url_env="OLLAMA_BASE_URL",
        default_model="qwen3",
    ),
    Provider(name="vllm", base_url="http://localhost:8000/v1", base_url_env="VLLM_BASE_URL"),
    Provider(
        name="llamacpp",
        base_url="http://localhost:8080/v1",
        base_url_env="LLAMACPP_BASE_URL",
        default_model="default",
    ),
    Provider(
        name="lmstudio", base_url="http://localhost:1234/v1", base_url_env="LMSTUDIO_BASE_URL"
    ),
    Provider(
        name="openrouter",
        base_url="https://openrouter.ai/api/v1",
        key_env="OPENROUTER_API_KEY",
        prices="openrouter",
    ),
    Provider(
        name="groq",
        base_url="https://api.groq.com/openai/v1",
        key_env="GROQ_API_KEY",
        default_model="openai/gpt-oss-120b",
        prices="groq",
    ),
    Provider(
        name="mistral",
        wire=ChatCompletions(
            asks_for_usage=False, seed_field="random_seed", user_after_tools=False
        ),
        base_url="https://api.mistral.ai/v1",
        key_env="MISTRAL_API_KEY",
        default_model="mistral-medium-latest",
        prices="mistral",
    ),
    Provider(
        name="deepseek",
        wire=ChatCompletions(replays_thinking=True),
        base_url="https://api.deepseek.com/v1",
        key_env="DEEPSEEK_API_KEY",
        default_model="deepseek-chat",
        prices="deepseek",
    ),
    Provider(
        name="moonshot",
        wire=ChatCompletions(replays_thinking=True),
        base_url="https://api.moonshot.ai/v1",
        key_env="MOONSHOT_API_KEY",
        prices="moonshotai",
    ),
    Provider(name="xai", base_url="https://api.x.ai/v1", key_env="XAI_API_KEY", prices="x-ai"),
    Provider(
        name="together",
        base_url="https://api.together.xyz/v1",
        key_env="TOGETHER_API_KEY",
        prices="together",
    ),
    Provider(
        name="fireworks",
        base_url="https://api.fireworks.ai/inference/v1",
        key_env="FIREWORKS_API_KEY",
        prices="fireworks",
    ),
    Provider(
        name="cerebras",
        base_url="https://api.cerebras.ai/v1",
        key_env="CEREBRAS_API_KEY",
        prices="cerebras",
    ),
    Provider(
        name="perplexity",
        base_url="https://api.perplexity.ai",
        key_env="PERPLEXITY_API_KEY",
        prices="perplexity",
    ),
)

KNOWN_PROVIDERS = {provider.name: provider for provider in _KNOWN}
"""By name, as in ``Agent("openai:gpt-...")``."""
