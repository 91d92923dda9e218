"""The words of a name that promise a secret, in many human languages, and those that say it is none.

Facts of languages, not of products: a new product's name is made of the same words.
"""

# ruff: noqa: RUF001

from __future__ import annotations

#: A person chooses what stands behind these: plain words may be one.
CHOSEN = (
    "password passwd passwrd passphrase passcode passwort kennwort passord lösenord losenord losord lösen adgangskode kodeord "
    "wachtwoord wagwoord salasana lykilord lykilorð parool salasõna slaptazodis slaptažodis parole parola parolă "
    "contraseña contrasena contrasenya contrasinal pasahitza senha motdepasse motpasse mdp haslo hasło heslo jelszo "
    "jelszó geslo lozinka sifra šifra sifre şifre parol fjalekalimi fjalëkalimi nenosiri katasandi sandi matkhau "
    "pasvorto cyfrinair pasfhocal pasfhocail pword passwordhash pswd psswd "
    "пароль пароля паролем паролю парол лозинка шифра құпиясөз нууц κωδικός κωδικό συνθηματικό "
    "סיסמה סיסמא סיסמת הסיסמה كلمة_المرور كلمة_السر رمز_عبور گذرواژه رمزعبور پاسورڈ पासवर्ड কূটশব্দ পাসওয়ার্ড "
    "கடவுச்சொல் పాస్‌వర్డ్ ಪಾಸ್ವರ್ಡ್ പാസ്‌വേഡ് પાસવર્ડ ਪਾਸਵਰਡ රහස්පදය รหัสผ่าน ລະຫັດຜ່ານ ពាក្យសម្ងាត់ စကားဝှက် "
    "პაროლი գաղտնաբառ የይለፍ_ቃል 密码 密碼 口令 通行碼 通关密语 パスワード 暗証番号 合言葉 パスフレーズ 비밀번호 암호 비번 패스워드 "
    "mot_de_passe mots_de_passe palavra_passe palavra-passe palabra_de_paso clave_de_acceso clave_secreta kata_sandi kata_laluan mật_khẩu "
    "mat_khau pass_phrase pass_word pass_code parola_d'ordine parola_chiave codice_segreto code_secret zugangscode "
    "security_answer secret_answer security_phrase key_phrase keyphrase recovery_key identified_by walletpassphrase geheimzahl codigo_secreto código_secreto passkode"
).split()
#: Chosen as well, where they are a word of their own: within others they mean anything.
CHOSEN_WHOLE = "pass pwd pw psk pwds passwds secret secrets".split()
#: A program draws these.
DRAWN = (
    "token apikey accesskey secretkey privatekey credential credentials geheimnis geheimnisse zugangsdaten "
    "zugangsschlüssel zugangsschluessel jeton segredo segreto secreto sekret hemlighet hemmelighed hemmelig salaisuus "
    "geheim tajemství tajemstvi tajne tajný titok titkos gizli rahasia hush_key passkey keystore sharedkey "
    "токен секрет секретный ключ ключа κλειδί μυστικό אסימון מפתח סוד رمز مفتاح توکن کلید टोकन कुंजी โทเค็น "
    "令牌 密钥 密鑰 秘钥 金鑰 私钥 私鑰 凭证 憑證 トークン シークレット 秘密鍵 秘密 アクセスキー 토큰 시크릿 비밀키 인증키 mnemonic webhook bearer jwt hmac "
    "schlüssel schluessel llave chave chiave sleutel nøgle nøkkel nyckel avain klucz klíč kľúč kulcs ključ kljuc "
    "anahtar cheie raktas atslēga võti kunci khóa_bí_mật khóa chìa_khóa clé jetons tokens apikeys seedphrase "
    "recovery_phrase recovery_code backup_code seed_phrase signature access_code auth_code authcode identifiants credenciales "
    "credenziali credenciais inloggegevens logindaten anmeldedaten poświadczenia přihlašovací"
).split()
DRAWN_WHOLE = (
    "auth authorization cookie cookies session sessionid sid sig sign otp totp pat seed dsn sas private priv creds cred clave clef "
    "cle ticket license licence credential passkeys community sessid csrf xsrf"
).split()
#: What makes a key one that opens something.
QUALIFIES_KEY = frozenset(
    "api access private secret auth sign signing encrypt encryption encrypted account service master license licence client shared preshared "
    "psk session app application admin root deploy webhook hmac jwt aes rsa ssh gpg pgp storage subscription host user "
    "security consumer integration write read ingest server cookie sentry db database smtp mail pg mysql redis rabbit ftp "
    "ssl tls cert keystore truststore vault bot stripe azure aws gcp openai model recovery device wallet wpa wep network "
    "radius tacacs snmp ospf bgp isakmp ike vpn cipher crypto data backup bitlocker activation product registration serial "
    "dev prod live test staging merchant payment secure transit kms dek kek fernet django flask rails management gen generated temporary temp initial bearer master nextauth "
    "sendgrid slack github gitlab google maps anthropic datadog".split()
)
#: With one of these anywhere, a name holds no secret.
NEVER = frozenset(
    "recv inchi inchikey hash hashes public pub publishable fingerprint fingerprints keyid tokenizer tokenizers tokenize tokenized tokenization sort sorted sorting "
    "cache cached caching nonce separator prefix suffix mode left  partition partitions foreign unique composite natural surrogate routing idempotency keyword keywords keyboard "
    "monkey turkey donkey hockey jockey keystone keyframe keyframes keypress keydown keyup keycode keyevent keyring keymap "
    "checksum etag revision commit page next previous prev continuation pagination cursor "
    "eos bos pad unk cls sep mask vocab max min num count counts total used usage limit prompt completion special "
    "translation locale i18n dict lookup candidate row column columns field fields metric label feature group object shard range "
    "author authors authority authentic passive passenger passage passes passed passing compass bypass bypassed encompass "
    "placeholder username usernames policy policies expiry expires expired expiration ttl lifetime age strength trespass surpass overpass underpass impasse "
    "verify verified signatures valid invalid enabled disabled required reset forgot changed rotation rotated scope scopes "
    "hashes hashed algorithm algo cryptography input output per cost price rate ssn".split()
)
#: As its last word these say that the name holds something about a secret.
NOT_LAST = frozenset(
    "id ids name names type types count length len url uri urls path paths file files filename version at index size format "
    "bits set exists alg kind owner status state date time ref arn prompt label hint regex pattern "
    "class manager provider factory error exception handler helper util utils list dir directory minlength maxlength "
    "validator encoder decoder store endpoint generator parser header".split()
)
#: With these a key is one of a table or of a storage service that shows it; only a long drawn one counts.
FAINT = frozenset("primary secondary".split())
